"""How the target chooses tokens: the most likely ones, or a draw from its distribution. A stage is built for each."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.models.layers import FLOAT, INT64, real_tokens, take_rows
from dfc.compiler.models.penalties import Counts, Penalties
from dfc.compiler.models.sampling import SamplingParameters, distribution, draw
from dfc.compiler.models.verification import Drafts, Verdict, count_accepted


class GreedyChoice:
    """The most likely token; a draft is accepted when it is that token."""

    suffix = ""

    def __init__(self, stage: StageBuilder, spec: TargetSpec, candidates: int = 0) -> None:
        self._op = stage.op

    def after_last(self, logits: ir.Value, input_ids: ir.Value, valid: ir.Value) -> ir.Value:
        """Return the token [N] after the first `valid` rows of input_ids [N, T]; logits [N, V] of the last of them."""
        return self._op.ArgMax(logits, axis=-1, keepdims=0)

    def judge(self, logits: ir.Value, drafts: Drafts, input_ids: ir.Value, forced: ir.Value) -> Verdict:
        """Accept the longest run of drafts that are the choice at their row; logits [N, J, V] of the judged rows."""
        op = self._op
        choices = op.ArgMax(logits, axis=-1, keepdims=0)
        accepted = count_accepted(op, op.And(op.Equal(drafts.tokens, choices), drafts.present))
        anchor = op.Squeeze(op.GatherElements(choices, op.Unsqueeze(accepted, [1]), axis=1), [1])
        return Verdict(accepted=accepted, committed=op.Add(forced, accepted), anchor=anchor)


class SampledChoice:
    """A draw from the target's distribution, shaped for each row of the batch by its own parameters.

    ``logit_bias`` [N, V] is added first, as transformers' `SequenceBiasLogitsProcessor` does; penalties come next.

    A draft drawn from a distribution q is accepted with probability min(1, p / q), where p is the target's of it; where
    it is not, the token is drawn from what p has more than q (speculative sampling, Leviathan et al. 2023). Every token
    has exactly the target's distribution. q lies on a few tokens: `draft_candidates` [N, J, candidates], all different,
    with `draft_probabilities` of the same shape, for the draft behind each judged row. A stage for no ``candidates``
    judges nothing. A temperature of 0 makes p one-hot, and this the greedy choice.
    """

    suffix = "_sampling"

    def __init__(self, stage: StageBuilder, spec: TargetSpec, candidates: int = 0) -> None:
        self._op = stage.op
        self._spec = spec
        self._bias = stage.input("logit_bias", FLOAT, ("N", spec.candidate_vocab_size))
        self._penalties = Penalties(stage, spec.candidate_vocab_size)
        self._parameters = SamplingParameters(
            stage.input("temperature", FLOAT, ("N",)),
            stage.input("top_k", INT64, ("N",)),
            stage.input("top_p", FLOAT, ("N",)),
            stage.input("min_p", FLOAT, ("N",)),
        )
        self._choice_uniforms = stage.input("choice_uniforms", FLOAT, ("N", "J" if candidates else 1))
        if candidates:
            self._accept_uniforms = stage.input("accept_uniforms", FLOAT, ("N", "J"))
            self._candidates = stage.input("draft_candidates", INT64, ("N", "J", candidates))
            self._q = stage.input("draft_probabilities", FLOAT, ("N", "J", candidates))

    def after_last(self, logits: ir.Value, input_ids: ir.Value, valid: ir.Value) -> ir.Value:
        """Return the token [N] after the first `valid` rows of input_ids [N, T]; logits [N, V] of the last of them."""
        op = self._op
        counts = self._penalties.count(input_ids, valid)
        probabilities = op.Squeeze(self._distribution(op.Unsqueeze(logits, [1]), counts), [1])
        self._penalties.finish(counts)
        vocab_size = self._spec.candidate_vocab_size
        return draw(op, probabilities, op.Squeeze(self._choice_uniforms, [1]), vocab_size=vocab_size)

    def judge(self, logits: ir.Value, drafts: Drafts, input_ids: ir.Value, forced: ir.Value) -> Verdict:
        """Accept drafts by their probability and draw the token after them; logits [N, J, V]."""
        op = self._op
        counts = self._penalties.count(input_ids, forced, drafts)
        probabilities = self._distribution(logits, counts)
        real = self._spec.candidate_vocab_size
        tokens = op.Unsqueeze(op.Min(drafts.tokens, real - 1), [2])
        p_of_draft = op.Squeeze(op.GatherElements(probabilities, tokens, axis=2), [2])
        q_of_draft = op.ReduceSum(op.Where(op.Equal(self._candidates, tokens), self._q, 0.0), [2], keepdims=0)
        holds = op.Less(op.Mul(self._accept_uniforms, q_of_draft), p_of_draft)
        accepted = count_accepted(op, op.And(holds, drafts.present))
        at = op.Unsqueeze(accepted, [1])
        self._penalties.finish(counts, at)
        p, candidates, q = (
            op.Squeeze(take_rows(op, value, at), [1]) for value in (probabilities, self._candidates, self._q)
        )
        refused, uniform = (op.GatherElements(value, at, axis=1) for value in (drafts.present, self._choice_uniforms))
        rest = _excess(op, p, candidates, op.Where(refused, q, 0.0))
        anchor = draw(op, rest, op.Squeeze(uniform, [1]), vocab_size=real)
        return Verdict(accepted=accepted, committed=op.Add(forced, accepted), anchor=anchor)

    def _distribution(self, logits: ir.Value, counts: Counts) -> ir.Value:
        """Return p [N, J, V] over the tokenizer's tokens: rows that only pad the head are never drawn."""
        real = real_tokens(self._op, logits, self._spec)
        biased = self._op.Add(real, self._op.Unsqueeze(self._bias, [1]))
        return distribution(self._op, self._penalties.apply(biased, counts), self._parameters)


def _excess(op: OpBuilder, p: ir.Value, candidates: ir.Value, q: ir.Value) -> ir.Value:
    """Return max(p - q, 0) [N, V] of p [N, V] and q [N, K] on different candidates [N, K]; p where nothing is left.

    Nothing is left when p and q differ by rounding only: then p is the right distribution as well.
    """
    of_candidates = op.GatherElements(p, candidates, axis=1)
    excess = op.ScatterElements(p, candidates, op.Max(op.Sub(of_candidates, q), 0.0), axis=1)
    return op.Where(op.Greater(op.ReduceSum(excess, [1], keepdims=1), 0.0), excess, p)


Choice = type[GreedyChoice] | type[SampledChoice]

CHOICES: tuple[Choice, ...] = (GreedyChoice, SampledChoice)
