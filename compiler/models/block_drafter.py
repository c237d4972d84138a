"""What DFlash and DFlash2 have in common (semantics A): the stage that appends context and drafts a block.

Every slot of the block is drafted at once, from layers that read the block and a cache of the target's features. A
drafter's own file says how a layer goes together from the parts here, and how a slot's token is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.artifacts import ComponentName
from dfc.compiler.checkpoint import DFlashSpec, TargetSpec, check_fits
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder, StageGraph
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.drafter import DrafterBuild, DrafterLoader, StageSizes
from dfc.compiler.models.layers import (
    FLOAT,
    INT64,
    embed,
    gated_mlp,
    head_norm,
    rms_norm,
    row_positions,
)
from dfc.compiler.models.proposals import MOST_CANDIDATES, PROPOSALS, Proposal, ProposalKind
from dfc.compiler.models.rope import rope_tables
from dfc.compiler.models.target import WEIGHTS_FOLDER as TARGET_FOLDER

Spec = TypeVar("Spec", bound=DFlashSpec)


class Context(NamedTuple):
    """Keys (rotated) and values of one layer's context rows, each [N, P, kv_heads * head_dim]."""

    keys: ir.Value
    values: ir.Value


@dataclass(frozen=True)
class Rotation:
    """Rotary tables, and the positions [N, rows] of the rows they turn."""

    cosine: ir.Value
    sine: ir.Value
    positions: ir.Value


@dataclass(frozen=True)
class Block:
    """Where the block's rows go: ``starts`` [N] is the anchor's position."""

    starts: ir.Value
    rotation: Rotation


class BlockDrafter:
    """The layers of one drafter: what every method reads stands here once."""

    def __init__(self, stage: StageBuilder, component: ComponentName, spec: DFlashSpec, target: TargetSpec) -> None:
        self.op: OpBuilder = stage.op
        self.weights = Weights(stage, spec.tensors, component)
        self._spec = spec
        self._target = target
        self._target_weights = Weights(stage, target.tensors, TARGET_FOLDER, target.quantised)

    def context(self, features: ir.Value) -> ir.Value:
        """Return the context rows [N, T, H] that all layers share, of the drafter's own features [N, T, F * H]."""
        projected = ops.linear(self.op, features, self.weights.float32(f"{self._spec.prefix}fc.weight"))
        return self.norm(projected, f"{self._spec.prefix}hidden_norm.weight")

    def append_context(self, context: ir.Value, cache: ir.Value, lengths: ir.Value, rotation: Rotation) -> ir.Value:
        """Write every layer's keys and values of context rows [N, T, H]: no other part of a layer sees them (semantics
        A.3).

        The cache [N, 1, C, layers * 2 * kv_heads * head_dim] holds, per position, the keys of all layers, then the
        values.
        """
        layers, attention = range(self._spec.num_layers), self._spec.attention
        heads, head_dim = len(layers) * attention.num_kv_heads, attention.head_dim
        keys, values = (self._all_layers(context, f"{name}_proj") for name in ("k", "v"))
        norms = [self.weights.float32(f"{self._spec.prefix}layers.{index}.self_attn.k_norm.weight") for index in layers]
        by_layer = [self.op.Expand(norm, [attention.num_kv_heads, head_dim]) for norm in norms]
        normed = rms_norm(
            self.op,
            self.op.Reshape(keys, [0, 0, heads, head_dim]),
            self.op.Constant(value=ir.tensor(np.ones(head_dim, np.float32))),
            self._spec.rms_norm_eps,
        )
        weighted = self.op.Reshape(self.op.Mul(normed, self.op.Concat(*by_layer, axis=0)), [0, 0, heads * head_dim])
        rows = self.op.Concat(self._rotate(weighted, rotation, heads), values, axis=-1)
        updated = self.op.TensorScatter(cache, self.op.Unsqueeze(rows, [1]), lengths, axis=2)
        updated.dtype = cache.dtype
        return updated

    def context_in_use(self, cache: ir.Value, starts: ir.Value) -> list[Context]:
        """Return each layer's context rows: as many as the longest sequence has."""
        used = self.op.Squeeze(ops.used_rows(self.op, cache, starts, axis=2), [1])
        layers = self._spec.num_layers
        parts = self.op.Split(used, num_outputs=2 * layers, axis=-1, _outputs=2 * layers)
        return [Context(parts[index], parts[layers + index]) for index in range(layers)]

    def _all_layers(self, x: ir.Value, name: str) -> ir.Value:
        """Project rows for every layer at once."""
        names = [f"{self._spec.prefix}layers.{index}.self_attn.{name}" for index in range(self._spec.num_layers)]
        weight = self.op.Concat(*(self.weights.float32(f"{full}.weight") for full in names), axis=0)
        if not self._spec.attention_bias:
            return ops.linear(self.op, x, weight)
        bias = self.op.Concat(*(self.weights.float32(f"{full}.bias") for full in names), axis=0)
        return ops.linear(self.op, x, weight, bias)

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Normalise with the plain weight (Qwen3 style, not the target's ``1 + weight``)."""
        return rms_norm(self.op, x, self.weights.float32(name), self._spec.rms_norm_eps)

    def embed(self, ids: ir.Value) -> ir.Value:
        """Look up the block's rows [N, 1 + S, H] in the target's embedding."""
        rows = embed(self.op, ids, self._target_weights.stored(f"{self._target.prefix}embed_tokens.weight"))
        scale = self._spec.input_embedding_scale
        return rows if scale == 1.0 else self.op.Mul(rows, scale)

    def mlp(self, x: ir.Value, index: int) -> ir.Value:
        """Run a layer's MLP."""
        return gated_mlp(self.op, x, self.weights, f"{self._spec.prefix}layers.{index}.mlp")

    def logits(self, hidden: ir.Value) -> ir.Value:
        """Return the target's logits [N, S, V]; rows that only pad the head are among them."""
        return ops.linear(self.op, hidden, self._target_weights.float32(self._target.head))

    def top_candidates(self, hidden: ir.Value, k: int) -> tuple[ir.Value, ir.Value]:
        """Return the `k` largest of the target's logits of its tokens, and the tokens; both [N, S, k]."""
        vocab_size = self._target.candidate_vocab_size
        return ops.top_candidates(self.op, self.logits(hidden), k=k, vocab_size=vocab_size)

    def attention(self, x: ir.Value, index: int, context: Context, block: Block) -> ir.Value:
        """Attend from the block's rows to the context and the block."""
        attention = self._spec.attention
        prefix = f"{self._spec.prefix}layers.{index}.self_attn"
        query = self._head_norm(self._linear(x, f"{prefix}.q_proj"), f"{prefix}.q_norm.weight", attention.num_heads)
        attended = ops.block_attention(
            self.op,
            self._rotate(query, block.rotation, attention.num_heads),
            *self._key_and_value(x, index, block.rotation),
            *context,
            block.starts,
            num_heads=attention.num_heads,
            num_kv_heads=attention.num_kv_heads,
            head_dim=attention.head_dim,
            causal=self._spec.causal[index],
            window=self._spec.sliding_windows[index],
        )
        return self._linear(attended, f"{prefix}.o_proj")

    def _key_and_value(self, x: ir.Value, index: int, rotation: Rotation) -> tuple[ir.Value, ir.Value]:
        prefix = f"{self._spec.prefix}layers.{index}.self_attn"
        heads = self._spec.attention.num_kv_heads
        key = self._head_norm(self._linear(x, f"{prefix}.k_proj"), f"{prefix}.k_norm.weight", heads)
        return self._rotate(key, rotation, heads), self._linear(x, f"{prefix}.v_proj")

    def _rotate(self, x: ir.Value, rotation: Rotation, num_heads: int) -> ir.Value:
        return self.op.RotaryEmbedding(x, rotation.cosine, rotation.sine, rotation.positions, num_heads=num_heads)

    def _head_norm(self, x: ir.Value, name: str, num_heads: int) -> ir.Value:
        weight = self.weights.float32(name)
        return head_norm(self.op, x, weight, num_heads, self._spec.attention.head_dim, self._spec.rms_norm_eps)

    def _linear(self, x: ir.Value, name: str) -> ir.Value:
        bias = self.weights.float32(f"{name}.bias") if self._spec.attention_bias else None
        return ops.linear(self.op, x, self.weights.float32(f"{name}.weight"), bias)


Layer = Callable[[BlockDrafter, ir.Value, int, Context, Block], ir.Value]
"""Runs one layer, given by its index, over the block's rows [N, 1 + S, H]."""

Choose = Callable[[BlockDrafter, ir.Value, ir.Value, Proposal], None]
"""Proposes for every slot, from the slots' final rows [N, S, H] and the anchor [N]."""


@dataclass(frozen=True)
class Drafting:
    """The artifact's sizes, most draft tokens that anyone will ask for, and how they are chosen."""

    sizes: StageSizes
    draft_tokens: int
    proposal: ProposalKind


def block_drafter_loader(
    component: ComponentName,
    architecture: str,
    recognises: Callable[[Fields], bool],
    read: Callable[[Path], Spec],
    stage: Callable[[Spec, TargetSpec, Drafting], StageGraph],
    candidates: Callable[[Spec, TargetSpec], int],
) -> DrafterLoader:
    """Return the loader of a kind of drafter whose checkpoints `read` reads and whose stages `stage` builds.

    `candidates` says how many tokens a slot's draft is drawn from.
    """

    def load(directory: Path, target: TargetSpec, draft_tokens: int | None) -> DrafterBuild:
        spec = read(directory)
        check_fits(spec, target)
        return _build(component, spec, draft_tokens, candidates(spec, target), partial(stage, spec, target))

    return DrafterLoader(architecture, recognises, load)


def likeliest_candidates(spec: DFlashSpec, target: TargetSpec) -> int:
    """Return the candidates of a slot for a drafter whose config says nothing of them."""
    return min(MOST_CANDIDATES, target.candidate_vocab_size)


def _build(
    component: ComponentName,
    spec: DFlashSpec,
    draft_tokens: int | None,
    candidates: int,
    stage: Callable[[Drafting], StageGraph],
) -> DrafterBuild:
    """Return what the build needs to know of a drafter with this stage, for at most `draft_tokens`."""
    most = min(spec.block_size - 1, draft_tokens or spec.block_size)

    def stages(sizes: StageSizes) -> Iterator[StageGraph]:
        for proposal in PROPOSALS:
            yield stage(Drafting(sizes, most, proposal))

    return DrafterBuild(
        component=component,
        source=spec.directory,
        draft_tokens=most,
        stages=stages,
        candidates=candidates,
        feature_layers=spec.target_layer_ids,
        weights_folder=component,
        tensors=spec.tensors,
        positions=spec.rope.positions,
        parameters={
            "draft_tokens": most,
            "block_size": spec.block_size,
            "target_layer_ids": spec.target_layer_ids,
        },
    )


def block_drafter_stage(
    component: ComponentName, spec: DFlashSpec, target: TargetSpec, drafting: Drafting, layer: Layer, choose: Choose
) -> StageGraph:
    """Build `draft_<component>`: append the context of newly committed rows, then draft one block.

    Inputs: `features` [N, T, F * H] of committed rows, `lengths` [N] context rows before them, `valid` [N] of the T
    rows that count, `anchor` [N] the committed token after them, `slots` [S] = 0 .. S - 1 the drafts wanted (1 <= S <
    block_size: the runtime block has 1 + S rows), and the context cache, which gets the context's rows and never the
    block's. Output: `draft_tokens` [N, S], and what the proposal adds.
    """
    stage = StageBuilder(f"draft_{component}{drafting.proposal.suffix}", component)
    op, sizes = stage.op, drafting.sizes
    width = len(sizes.feature_layers) * spec.hidden_size
    features = stage.input("features", FLOAT, ("N", "T", width))
    lengths, valid, anchor = (stage.input(name, INT64, ("N",)) for name in ("lengths", "valid", "anchor"))
    slots = stage.input("slots", INT64, ("S",))
    proposal = drafting.proposal(stage, "S", sizes.candidates)
    attention = spec.attention
    cache_name = f"{component}.context_cache"
    cache_shape = ("N", 1, sizes.capacity, spec.num_layers * 2 * attention.num_kv_heads * attention.head_dim)
    cache = stage.input(cache_name, FLOAT, cache_shape, role="cache")

    drafter = BlockDrafter(stage, component, spec, target)
    tables = rope_tables(op, spec.rope, sizes.capacity)
    # Rejected rows need no projection: as many rows as the sequence with the most has.
    features = ops.used_rows(op, features, valid, axis=1)
    context = drafter.context(_own_features(op, features, spec, sizes.feature_layers))
    context_rotation = Rotation(*tables, row_positions(op, lengths, features))
    ids = _block_ids(op, anchor, slots, spec.mask_token_id)
    starts = op.Add(lengths, valid)
    block = Block(starts, Rotation(*tables, row_positions(op, starts, ids)))

    hidden = drafter.embed(ids)
    updated = drafter.append_context(context, cache, lengths, context_rotation)
    for index, layer_context in enumerate(drafter.context_in_use(updated, starts)):
        hidden = layer(drafter, hidden, index, layer_context, block)
    hidden = drafter.norm(op.Slice(hidden, [1], [2**31 - 1], [1]), f"{spec.prefix}norm.weight")

    choose(drafter, hidden, anchor, proposal)
    proposal.finish()
    stage.output(f"next.{cache_name}", updated, FLOAT, cache_shape, role="cache", alias=cache_name)
    return stage.finish(draft_tokens=drafting.draft_tokens)


def scaled(op: OpBuilder, logits: ir.Value, spec: DFlashSpec) -> ir.Value:
    """Return logits with the drafter's multiplier and soft cap."""
    if spec.output_multiplier != 1.0:
        logits = op.Mul(logits, spec.output_multiplier)
    if spec.final_logit_softcapping is not None:
        cap = spec.final_logit_softcapping
        logits = op.Mul(op.Tanh(op.Div(logits, cap)), cap)
    return logits


def _own_features(op: OpBuilder, features: ir.Value, spec: DFlashSpec, layers: tuple[int, ...]) -> ir.Value:
    """Return the outputs of the drafter's own target layers, in its order, of features [N, T, F * H] of `layers`."""
    if layers == spec.target_layer_ids:
        return features
    by_layer = op.Reshape(features, [0, 0, len(layers), spec.hidden_size])
    own = op.Gather(by_layer, [layers.index(layer) for layer in spec.target_layer_ids], axis=2)
    return op.Reshape(own, [0, 0, len(spec.target_layer_ids) * spec.hidden_size])


def _block_ids(op: OpBuilder, anchor: ir.Value, slots: ir.Value, mask_token_id: int) -> ir.Value:
    """Return [N, 1 + S]: the anchor, then masks."""
    column = op.Unsqueeze(anchor, [1])
    masks = op.Expand(mask_token_id, op.Concat(op.Shape(anchor), op.Shape(slots), axis=0))
    return op.Concat(column, masks, axis=1)
