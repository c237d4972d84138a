"""The multi-token prediction head of a target checkpoint (semantics D): stages `draft_mtp_<draft tokens>`."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder, StageGraph
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.caches import Caches, cache_inputs, cache_outputs
from dfc.compiler.models.drafter import DrafterBuild, StageSizes
from dfc.compiler.models.layers import FLOAT, INT64, embed, take_rows
from dfc.compiler.models.proposals import (
    MOST_CANDIDATES,
    PROPOSALS,
    LikeliestProposal,
    ProposalKind,
)
from dfc.compiler.models.qwen3_5 import Placement, attention_layer, one_plus_norm
from dfc.compiler.models.rope import rope_tables
from dfc.compiler.models.target import WEIGHTS_FOLDER

DEFAULT_DRAFT_TOKENS = 7
"""Most drafts of a round when the user does not say: each number has a small graph of its own."""

DEFAULT_STATIC_DRAFT_TOKENS = 3
"""The same where one graph serves all numbers, and always takes the time of the longest."""


def find_drafter(spec: TargetSpec, draft_tokens: int | None, *, one_stage: bool = False) -> DrafterBuild | None:
    """Return the head of the target's checkpoint as a drafter, if it has one.

    ``one_stage``: build the longest stage only, for a backend where a stage costs much.
    """
    if spec.mtp is None:
        return None
    most = draft_tokens or (DEFAULT_STATIC_DRAFT_TOKENS if one_stage else DEFAULT_DRAFT_TOKENS)
    lengths = (most,) if one_stage else tuple(range(1, most + 1))

    def stages(sizes: StageSizes) -> Iterator[StageGraph]:
        for count in lengths:
            for proposal in PROPOSALS:
                yield mtp_stage(spec, sizes, count, proposal)

    return DrafterBuild(
        component="mtp",
        source=spec.directory,
        draft_tokens=most,
        stages=stages,
        candidates=min(MOST_CANDIDATES, spec.candidate_vocab_size),
        reads_hidden=True,
        parameters={"draft_tokens": most, "stages": lengths},
    )


def mtp_stage(
    spec: TargetSpec, sizes: StageSizes, draft_tokens: int, proposal_kind: ProposalKind = LikeliestProposal
) -> StageGraph:
    """Build `draft_mtp_<draft_tokens>`: replay the committed rows, then draft recursively.

    Inputs: `next_ids` [N, T] the token after each row, `hidden` [N, T, H] the target's final normed rows, `lengths` [N]
    rows replayed before, `valid` [N] >= 1 rows that count, and the layer's caches. Row t stands at the position of its
    hidden state. The last valid row gives draft 1; step k feeds draft k and the head's own output at the next position.
    Output: `draft_tokens` [N, draft_tokens], and what the proposal adds. The caches get the replayed rows and never the
    drafts'.
    """
    stage = StageBuilder(f"draft_mtp_{draft_tokens}{proposal_kind.suffix}", "mtp")
    op, capacity = stage.op, sizes.capacity
    weights = Weights(stage, spec.tensors, WEIGHTS_FOLDER, spec.quantised)
    next_ids = stage.input("next_ids", INT64, ("N", "T"))
    hidden = stage.input("hidden", FLOAT, ("N", "T", spec.hidden_size))
    lengths, valid = (stage.input(name, INT64, ("N",)) for name in ("lengths", "valid"))
    proposal = proposal_kind(stage, draft_tokens, sizes.candidates)
    before = cache_inputs(stage, spec.attention, capacity, "mtp.layers.0")
    rope = rope_tables(op, spec.rope, capacity)

    rows, caches = _step(op, weights, spec, next_ids, hidden, before, Placement(lengths, valid, *rope))
    last = take_rows(op, rows, op.Unsqueeze(op.Sub(valid, 1), [1]))
    head = weights.float32(spec.head)
    draft = proposal.choose(ops.linear(op, last, head), spec)
    base = op.Add(lengths, valid)
    scratch = _copy_of_used(op, caches, base, draft_tokens - 1) if draft_tokens > 1 else caches
    one_row = op.Expand([1], op.Shape(lengths))
    for step in range(1, draft_tokens):
        placement = Placement(op.Add(base, step - 1), one_row, *rope)
        last, scratch = _step(op, weights, spec, draft, last, scratch, placement)
        draft = proposal.choose(ops.linear(op, last, head), spec)

    proposal.finish()
    cache_outputs(stage, spec.attention, capacity, [before], [caches])
    return stage.finish(draft_tokens=draft_tokens)


def _copy_of_used(op: OpBuilder, caches: Caches, base: ir.Value, room: int) -> Caches:
    """Return the rows in use and room for the steps' own.

    A step that wrote to the cache itself would cost a copy of its whole capacity on onnxruntime, which updates in place
    only between a graph's input and its output.
    """
    return Caches(*(ops.used_rows(op, cache, base, axis=2, room=room) for cache in caches))


def _step(
    op: OpBuilder,
    weights: Weights,
    spec: TargetSpec,
    ids: ir.Value,
    hidden: ir.Value,
    caches: Caches,
    placement: Placement,
) -> tuple[ir.Value, Caches]:
    """Run the head over rows (ids [N, T], hidden [N, T, H]) and return its normed output rows."""
    epsilon = spec.rms_norm_eps
    embedding = embed(op, ids, weights.stored(f"{spec.prefix}embed_tokens.weight"))
    embedding = one_plus_norm(op, embedding, weights, "mtp.pre_fc_norm_embedding.weight", epsilon)
    hidden = one_plus_norm(op, hidden, weights, "mtp.pre_fc_norm_hidden.weight", epsilon)
    mixed = ops.linear(op, op.Concat(embedding, hidden, axis=-1), weights.float32("mtp.fc.weight"))
    mixed, caches = attention_layer(op, weights, spec, mixed, "mtp.layers.0", caches, placement)
    return one_plus_norm(op, mixed, weights, "mtp.norm.weight", epsilon), caches
