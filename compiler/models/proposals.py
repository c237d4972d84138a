"""How a drafter chooses what it proposes: its likeliest tokens, or draws with the distribution of each.

A stage is built for each of the two.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.models.layers import FLOAT, INT64, indices, real_tokens

MOST_CANDIDATES = 16
"""Tokens that a draft is drawn from where the drafter does not say: more gain nothing (docs/decisions/0003)."""


class Walk(NamedTuple):
    """What DFlash2's selector walks over, as in `dfc.plugins.selector`: scores and candidates [N, S, K], of which it
    takes the first ``top_k``, projected rows [N, S, R], codebooks [V, R] and the anchor [N]."""

    scores: ir.Value
    candidates: ir.Value
    projected: ir.Value
    predecessors: ir.Value
    successors: ir.Value
    anchor: ir.Value
    top_k: int
    max_slots: int


class LikeliestProposal:
    """The likeliest tokens: for greedy decoding."""

    suffix = ""

    def __init__(self, stage: StageBuilder, slots: int | str, candidates: int) -> None:
        self._stage = stage
        self._slots = slots
        self._tokens: list[ir.Value] = []

    def choose(self, logits: ir.Value, target: TargetSpec) -> ir.Value:
        """Propose for the next slots from the target's padded logits [N, S, V]; return the tokens [N, S]."""
        tokens = self._stage.op.ArgMax(real_tokens(self._stage.op, logits, target), axis=-1, keepdims=0)
        self._tokens.append(tokens)
        return tokens

    def walk_width(self, top_k: int) -> int:
        """Return how many candidates `walk` wants for a selector of `top_k`."""
        return top_k

    def walk(self, walk: Walk) -> None:
        """Propose for all slots what the selector finds."""
        op = self._stage.op
        self._tokens.append(
            ops.candidate_selector(op, walk.candidates, walk.scores, *walk[2:6], max_slots=walk.max_slots)
        )

    def finish(self) -> None:
        """Declare the outputs: `draft_tokens` [N, slots]."""
        self._stage.output("draft_tokens", _joined(self._stage.op, self._tokens), INT64, ("N", self._slots))


class SampledProposal:
    """Draws from softmax(score / ``temperature``) over a slot's candidates; a temperature of 0 takes the likeliest.

    `draft_uniforms` [N, slots] are the numbers that draw. Outputs besides the tokens: `draft_candidates` [N, slots, K],
    all different, and `draft_probabilities` [N, slots, K]: exactly the distribution (q) that the token was drawn from.
    """

    suffix = "_sampling"

    def __init__(self, stage: StageBuilder, slots: int | str, candidates: int) -> None:
        self._stage = stage
        self._slots = slots
        self._width = candidates
        self._temperature = stage.input("temperature", FLOAT, ("N",))
        self._uniforms = stage.input("draft_uniforms", FLOAT, ("N", slots))
        self._tokens: list[ir.Value] = []
        self._candidates: list[ir.Value] = []
        self._probabilities: list[ir.Value] = []

    def choose(self, logits: ir.Value, target: TargetSpec) -> ir.Value:
        """Propose for the next slots from the target's padded logits [N, S, V]; return the tokens [N, S]."""
        op = self._stage.op
        scores, candidates = ops.top_candidates(op, logits, k=self._width, vocab_size=target.candidate_vocab_size)
        uniforms = self._uniforms
        if not isinstance(self._slots, str):
            done = len(self._tokens)
            uniforms = op.Slice(uniforms, [done], [done + 1], [1])
        places, probabilities = draw_candidates(op, scores, self._temperature, uniforms)
        tokens = op.Squeeze(op.GatherElements(candidates, op.Unsqueeze(places, [2]), axis=2), [2])
        self._add(tokens, candidates, probabilities)
        return tokens

    def walk_width(self, top_k: int) -> int:
        """Return how many candidates `walk` wants for a selector of `top_k`: those behind have a probability of 0."""
        return self._width

    def walk(self, walk: Walk) -> None:
        """Propose for all slots what the selector finds."""
        op = self._stage.op
        behind = self._width - walk.top_k
        scores, candidates = (
            op.Slice(value, [0], [walk.top_k], [2]) if behind else value for value in (walk.scores, walk.candidates)
        )
        tokens, probabilities = ops.sampled_candidate_selector(
            op, candidates, scores, *walk[2:6], self._temperature, self._uniforms, max_slots=walk.max_slots
        )
        if behind:
            probabilities = op.Pad(probabilities, [0, 0, 0, 0, 0, behind], 0.0)
        self._add(tokens, walk.candidates, probabilities)

    def finish(self) -> None:
        """Declare the outputs."""
        op = self._stage.op
        shape = ("N", self._slots, self._width)
        self._stage.output("draft_tokens", _joined(op, self._tokens), INT64, ("N", self._slots))
        self._stage.output("draft_candidates", _joined(op, self._candidates), INT64, shape)
        self._stage.output("draft_probabilities", _joined(op, self._probabilities), FLOAT, shape)

    def _add(self, tokens: ir.Value, candidates: ir.Value, probabilities: ir.Value) -> None:
        self._tokens.append(tokens)
        self._candidates.append(candidates)
        self._probabilities.append(probabilities)


Proposal = LikeliestProposal | SampledProposal

ProposalKind = type[LikeliestProposal] | type[SampledProposal]

PROPOSALS: tuple[ProposalKind, ...] = (LikeliestProposal, SampledProposal)


def draw_candidates(
    op: OpBuilder, scores: ir.Value, temperature: ir.Value, uniforms: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return which of the K candidates is drawn [N, S], and the distribution q [N, S, K] that it is drawn from.

    scores [N, S, K]; temperature [N], 0 for the highest score; uniforms [N, S].
    """
    per_row = op.Unsqueeze(temperature, [1, 2])
    greedy = op.LessOrEqual(per_row, 0.0)
    softmax = op.Softmax(op.Div(scores, op.Where(greedy, 1.0, per_row)), axis=-1)
    best = op.ArgMax(scores, axis=-1, keepdims=1)
    one_hot = op.Cast(op.Equal(indices(op, scores, 2), best), to=FLOAT)
    q = op.Where(greedy, one_hot, softmax)
    passed = op.Cast(op.GreaterOrEqual(op.Unsqueeze(uniforms, [2]), op.CumSum(q, 2)), to=INT64)
    last = op.Sub(op.Shape(scores, start=2, end=3), 1)
    return op.Min(op.ReduceSum(passed, [2], keepdims=0), last), q


def _joined(op: OpBuilder, parts: list[ir.Value]) -> ir.Value:
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=1)
