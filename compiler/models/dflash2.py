"""DFlash2 drafters (semantics A and B): stage `draft_dflash2`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint import DFlash2Spec, TargetSpec, check_fits, load_dflash2
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder, StageGraph
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.drafter import DrafterBuild
from dfc.compiler.models.layers import (
    FLOAT,
    INT64,
    embed,
    gated_mlp,
    head_norm,
    rms_norm,
    rope_tables,
    row_positions,
)
from dfc.compiler.models.target import WEIGHTS_FOLDER as TARGET_FOLDER

WEIGHTS_FOLDER = "dflash2"


def load_drafter(directory: Path, target: TargetSpec, draft_tokens: int | None) -> DrafterBuild:
    """Read a drafter's checkpoint and check that it goes with the target.

    Raises:
        CheckpointError: it does not.
    """
    spec = load_dflash2(directory)
    check_fits(spec, target)
    most = min(spec.block_size - 1, draft_tokens or spec.block_size)

    def stages(capacity: int) -> Iterator[StageGraph]:
        yield dflash2_stage(spec, target, capacity, most)

    return DrafterBuild(
        component="dflash2",
        source=directory,
        draft_tokens=most,
        stages=stages,
        feature_layers=spec.target_layer_ids,
        weights_folder=WEIGHTS_FOLDER,
        tensors=spec.tensors,
        parameters={
            "draft_tokens": most,
            "block_size": spec.block_size,
            "target_layer_ids": spec.target_layer_ids,
        },
    )


LOADER = ("DFlash2DraftModel", load_drafter)
"""Architecture named in config.json, and what reads such a checkpoint."""


class Context(NamedTuple):
    """Keys (rotated) and values of one layer's context rows, each [N, P, kv_heads * head_dim]."""

    keys: ir.Value
    values: ir.Value


@dataclass(frozen=True)
class _Rotation:
    """Rotary tables, and the positions [N, rows] of the rows they turn."""

    cosine: ir.Value
    sine: ir.Value
    positions: ir.Value


@dataclass(frozen=True)
class _Block:
    """Where the block's rows go: ``starts`` [N] is the anchor's position."""

    starts: ir.Value
    rotation: _Rotation


class _Drafter:
    """The layers of one drafter: what every method reads stands here once."""

    def __init__(self, stage: StageBuilder, spec: DFlash2Spec, weights: Weights) -> None:
        self._op: OpBuilder = stage.op
        self._spec = spec
        self._weights = weights

    def append_context(self, context: ir.Value, cache: ir.Value, lengths: ir.Value, rotation: _Rotation) -> ir.Value:
        """Write every layer's keys and values of context rows [N, T, H]: no layer norm, no convolution (semantics A.3).

        The cache [N, 1, C, layers * 2 * kv_heads * head_dim] holds, per position, the keys of all layers, then the
        values.
        """
        layers, attention = range(self._spec.num_layers), self._spec.attention
        heads, head_dim = len(layers) * attention.num_kv_heads, attention.head_dim
        keys, values = (self._all_layers(context, f"{name}_proj") for name in ("k", "v"))
        norms = [
            self._weights.float32(f"{self._spec.prefix}layers.{index}.self_attn.k_norm.weight") for index in layers
        ]
        by_layer = [self._op.Expand(norm, [attention.num_kv_heads, head_dim]) for norm in norms]
        normed = rms_norm(
            self._op,
            self._op.Reshape(keys, [0, 0, heads, head_dim]),
            self._op.Constant(value=ir.tensor(np.ones(head_dim, np.float32))),
            self._spec.rms_norm_eps,
        )
        weighted = self._op.Reshape(self._op.Mul(normed, self._op.Concat(*by_layer, axis=0)), [0, 0, heads * head_dim])
        rows = self._op.Concat(self._rotate(weighted, rotation, heads), values, axis=-1)
        updated = self._op.TensorScatter(cache, self._op.Unsqueeze(rows, [1]), lengths, axis=2)
        updated.dtype = cache.dtype
        return updated

    def context_in_use(self, cache: ir.Value, starts: ir.Value) -> list[Context]:
        """Return each layer's context rows: as many as the longest sequence has."""
        used = self._op.Squeeze(ops.used_rows(self._op, cache, starts, axis=2), [1])
        layers = self._spec.num_layers
        parts = self._op.Split(used, num_outputs=2 * layers, axis=-1, _outputs=2 * layers)
        return [Context(parts[index], parts[layers + index]) for index in range(layers)]

    def _all_layers(self, x: ir.Value, name: str) -> ir.Value:
        """Project rows for every layer at once."""
        names = [f"{self._spec.prefix}layers.{index}.self_attn.{name}" for index in range(self._spec.num_layers)]
        weight = self._op.Concat(*(self._weights.float32(f"{full}.weight") for full in names), axis=0)
        if not self._spec.attention_bias:
            return ops.linear(self._op, x, weight)
        bias = self._op.Concat(*(self._weights.float32(f"{full}.bias") for full in names), axis=0)
        return ops.linear(self._op, x, weight, bias)

    def layer(self, hidden: ir.Value, index: int, context: Context, block: _Block) -> ir.Value:
        """Run one layer over the block; convolutions stand around both sublayers (semantics B.3)."""
        prefix = f"{self._spec.prefix}layers.{index}"
        normed = self.norm(hidden, f"{prefix}.input_layernorm.weight")
        coefficients, base = self._convolution(normed, f"{prefix}.attention_conv")
        prepared = self._convolve(normed, coefficients, base, side=0)
        mixed = self._attention(prepared, index, context, block)
        hidden = self._convolve(mixed, coefficients, base, side=1, residual=hidden)
        normed = self.norm(hidden, f"{prefix}.post_attention_layernorm.weight")
        coefficients, base = self._convolution(normed, f"{prefix}.mlp_conv")
        prepared = self._convolve(normed, coefficients, base, side=0)
        mixed = gated_mlp(self._op, prepared, self._weights, f"{prefix}.mlp")
        return self._convolve(mixed, coefficients, base, side=1, residual=hidden)

    def norm(self, x: ir.Value, name: str) -> ir.Value:
        """Normalise with the plain weight (Qwen3 style, not the target's ``1 + weight``)."""
        return rms_norm(self._op, x, self._weights.float32(name), self._spec.rms_norm_eps)

    def _attention(self, x: ir.Value, index: int, context: Context, block: _Block) -> ir.Value:
        attention = self._spec.attention
        prefix = f"{self._spec.prefix}layers.{index}.self_attn"
        query = self._head_norm(self._linear(x, f"{prefix}.q_proj"), f"{prefix}.q_norm.weight", attention.num_heads)
        attended = ops.block_attention(
            self._op,
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

    def _key_and_value(self, x: ir.Value, index: int, rotation: _Rotation) -> tuple[ir.Value, ir.Value]:
        prefix = f"{self._spec.prefix}layers.{index}.self_attn"
        heads = self._spec.attention.num_kv_heads
        key = self._head_norm(self._linear(x, f"{prefix}.k_proj"), f"{prefix}.k_norm.weight", heads)
        return self._rotate(key, rotation, heads), self._linear(x, f"{prefix}.v_proj")

    def _rotate(self, x: ir.Value, rotation: _Rotation, num_heads: int) -> ir.Value:
        return self._op.RotaryEmbedding(x, rotation.cosine, rotation.sine, rotation.positions, num_heads=num_heads)

    def _head_norm(self, x: ir.Value, name: str, num_heads: int) -> ir.Value:
        weight = self._weights.float32(name)
        return head_norm(self._op, x, weight, num_heads, self._spec.attention.head_dim, self._spec.rms_norm_eps)

    def _linear(self, x: ir.Value, name: str) -> ir.Value:
        bias = self._weights.float32(f"{name}.bias") if self._spec.attention_bias else None
        return ops.linear(self._op, x, self._weights.float32(f"{name}.weight"), bias)

    def _convolution(self, normed: ir.Value, prefix: str) -> tuple[ir.Value, ir.Value]:
        """Return the coefficients of both sides, from the sublayer's normed input, and their base."""
        coefficients = ops.linear(self._op, normed, self._weights.float32(f"{prefix}.kernel_projection.weight"))
        return coefficients, self._weights.float32(f"{prefix}.base_kernel")

    def _convolve(
        self, x: ir.Value, coefficients: ir.Value, base: ir.Value, *, side: int, residual: ir.Value | None = None
    ) -> ir.Value:
        taps, group_size = self._spec.conv_kernel_size, self._spec.conv_group_size
        return ops.grouped_convolution(
            self._op, x, coefficients, base, residual, side=side, taps=taps, group_size=group_size
        )


def dflash2_stage(spec: DFlash2Spec, target: TargetSpec, capacity: int, draft_tokens: int | None = None) -> StageGraph:
    """Build `draft_dflash2`: append the context of newly committed rows, then draft one block.

    Inputs: `features` [N, T, F * H] of committed rows, `lengths` [N] context rows before them, `valid` [N] of the T
    rows that count, `anchor` [N] the committed token after them, `slots` [S] = 0 .. S - 1 the drafts wanted (1 <= S <
    block_size: the convolution's boundary follows the runtime block of 1 + S rows), and the context cache, which gets
    the context's rows and never the block's. Output: `draft_tokens` [N, S]; the argument of that name is the
    most anyone will ask for.
    """
    stage = StageBuilder("draft_dflash2", "dflash2")
    op = stage.op
    weights = Weights(stage, spec.tensors, WEIGHTS_FOLDER)
    target_weights = Weights(stage, target.tensors, TARGET_FOLDER)
    width = len(spec.target_layer_ids) * spec.hidden_size
    features = stage.input("features", FLOAT, ("N", "T", width))
    lengths, valid, anchor = (stage.input(name, INT64, ("N",)) for name in ("lengths", "valid", "anchor"))
    slots = stage.input("slots", INT64, ("S",))
    attention = spec.attention
    cache_width = spec.num_layers * 2 * attention.num_kv_heads * attention.head_dim
    cache_shape = ("N", 1, capacity, cache_width)
    cache = stage.input("dflash2.context_cache", FLOAT, cache_shape, role="cache")

    drafter = _Drafter(stage, spec, weights)
    tables = rope_tables(op, spec.rope, capacity)
    # Rejected rows need no projection: as many rows as the sequence with the most has.
    features = ops.used_rows(op, features, valid, axis=1)
    context = ops.linear(op, features, weights.float32(f"{spec.prefix}fc.weight"))
    context = drafter.norm(context, f"{spec.prefix}hidden_norm.weight")
    context_rotation = _Rotation(*tables, row_positions(op, lengths, features))
    ids = _block_ids(op, anchor, slots, spec.mask_token_id)
    starts = op.Add(lengths, valid)
    block = _Block(starts, _Rotation(*tables, row_positions(op, starts, ids)))

    hidden = embed(op, ids, target_weights.stored(f"{target.prefix}embed_tokens.weight"))
    if spec.input_embedding_scale != 1.0:
        hidden = op.Mul(hidden, spec.input_embedding_scale)
    updated = drafter.append_context(context, cache, lengths, context_rotation)
    for index, layer_context in enumerate(drafter.context_in_use(updated, starts)):
        hidden = drafter.layer(hidden, index, layer_context, block)
    hidden = drafter.norm(op.Slice(hidden, [1], [2**31 - 1], [1]), f"{spec.prefix}norm.weight")

    tokens = _select(op, spec, target, weights, target_weights, hidden, anchor)
    stage.output("draft_tokens", tokens, INT64, ("N", "S"))
    stage.output("next.dflash2.context_cache", updated, FLOAT, cache_shape, role="cache", alias="dflash2.context_cache")
    return stage.finish(draft_tokens=draft_tokens or spec.block_size - 1)


def _block_ids(op: OpBuilder, anchor: ir.Value, slots: ir.Value, mask_token_id: int) -> ir.Value:
    """Return [N, 1 + S]: the anchor, then masks."""
    column = op.Unsqueeze(anchor, [1])
    masks = op.Expand(mask_token_id, op.Concat(op.Shape(anchor), op.Shape(slots), axis=0))
    return op.Concat(column, masks, axis=1)


def _select(
    op: OpBuilder,
    spec: DFlash2Spec,
    target: TargetSpec,
    weights: Weights,
    target_weights: Weights,
    hidden: ir.Value,
    anchor: ir.Value,
) -> ir.Value:
    """Pick a token per slot from the target's head over the block's mask rows [N, S, H]."""
    logits = ops.linear(op, hidden, target_weights.float32(target.head))
    if target.candidate_vocab_size < target.vocab_size:
        logits = op.Slice(logits, [0], [target.candidate_vocab_size], [2])
    scores, candidates = op.TopK(logits, [spec.selector_top_k], axis=-1, _outputs=2)
    if spec.output_multiplier != 1.0:
        scores = op.Mul(scores, spec.output_multiplier)
    if spec.final_logit_softcapping is not None:
        cap = spec.final_logit_softcapping
        scores = op.Mul(op.Tanh(op.Div(scores, cap)), cap)
    selector = f"{spec.prefix}candidate_selector"
    predecessors, successors = (weights.stored(_codebook(spec, side)) for side in ("predecessor", "successor"))
    projected = ops.linear(op, hidden, weights.float32(f"{selector}.hidden_projection.weight"))
    return ops.candidate_selector(
        op, candidates, scores, projected, predecessors, successors, anchor, max_slots=spec.block_size - 1
    )


def _codebook(spec: DFlash2Spec, side: str) -> str:
    """Return the tensor's name: some exports add `.weight` to the bare one."""
    bare = f"{spec.prefix}candidate_selector.{side}_codebook"
    return bare if bare in spec.tensors else f"{bare}.weight"
