"""Penalties on tokens that a sequence has already, counted in the target's graph; accepted drafts count."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.models.layers import FLOAT, INT64, indices, take_rows
from dfc.compiler.models.verification import Drafts

STATES = ("seen_counts", "generated_counts")
"""Times each token stands in the sequence, [N, V]; and in the answer alone."""


@dataclass(frozen=True)
class Counts:
    """Counts after each judged row, [N, J, V], in the order of `STATES`."""

    seen: ir.Value
    generated: ir.Value


class Penalties:
    """``repetition_penalty`` [N] as in transformers (CTRL, Keskar et al. 2019), on prompt and answer; then
    ``frequency_penalty`` and ``presence_penalty`` [N], on the answer: subtracted for each time, and once.

    ``prompt_rows`` [N] of a call's rows are a prompt's; where there are any, a new answer begins.
    """

    def __init__(self, stage: StageBuilder, vocab_size: int) -> None:
        self._stage = stage
        self._vocab_size = vocab_size
        self._repetition, self._frequency, self._presence = (
            stage.input(f"{name}_penalty", FLOAT, ("N",)) for name in ("repetition", "frequency", "presence")
        )
        self._prompt_rows = stage.input("prompt_rows", INT64, ("N",))
        self._before = [stage.input(name, FLOAT, ("N", vocab_size), "state") for name in STATES]

    def count(self, input_ids: ir.Value, forced: ir.Value, drafts: Drafts | None = None) -> Counts:
        """Return the counts after the first `forced` [N] rows of input_ids [N, T], and after each draft behind them."""
        op = self._stage.op
        rows = indices(op, input_ids, 1)
        # Ids that only pad the head can stand in a prompt; they are never drawn, so nobody asks for their count.
        is_forced = op.And(op.Less(rows, op.Unsqueeze(forced, [1])), op.Less(input_ids, self._vocab_size))
        ids = op.Min(input_ids, self._vocab_size - 1)
        prompt_rows = op.Unsqueeze(self._prompt_rows, [1])
        is_generated = op.And(is_forced, op.GreaterOrEqual(rows, prompt_rows))
        seen, generated = self._before
        generated = op.Where(op.Greater(prompt_rows, 0), 0.0, generated)
        counts = []
        for before, counted in ((seen, is_forced), (generated, is_generated)):
            amounts = op.Cast(counted, to=FLOAT)
            after = ops.add_counts(op, before, ids, amounts, vocab_size=self._vocab_size)
            counts.append(op.Unsqueeze(after, [1]))
        if drafts is None:
            return Counts(*counts)
        tokens = op.Where(drafts.present, drafts.tokens, -1)
        one_hot = op.Cast(op.Equal(op.Unsqueeze(tokens, [2]), op.Range(0, self._vocab_size, 1)), to=FLOAT)
        # A product, for TensorRT-RTX sums along an axis before the last one slowly.
        slots = indices(op, tokens, 1)
        is_earlier = op.Cast(op.Less(slots, op.Unsqueeze(slots, [1])), to=FLOAT)
        earlier = op.MatMul(is_earlier, one_hot)
        return Counts(*(op.Add(count, earlier) for count in counts))

    def apply(self, logits: ir.Value, counts: Counts) -> ir.Value:
        """Return logits [N, J, V] with the penalties."""
        op = self._stage.op
        repetition, frequency, presence = (
            op.Unsqueeze(value, [1, 2]) for value in (self._repetition, self._frequency, self._presence)
        )
        repeated = op.Where(op.Less(logits, 0.0), op.Mul(logits, repetition), op.Div(logits, repetition))
        logits = op.Where(op.Greater(counts.seen, 0.0), repeated, logits)
        once = op.Mul(op.Min(counts.generated, 1.0), presence)
        return op.Sub(logits, op.Add(op.Mul(counts.generated, frequency), once))

    def finish(self, counts: Counts, last: ir.Value | None = None) -> None:
        """Declare the counts after the judged row `last` [N, 1], the only one without it, as the next ones."""
        op = self._stage.op
        for name, count in zip(STATES, (counts.seen, counts.generated), strict=True):
            after = op.Squeeze(count if last is None else take_rows(op, count, last), [1])
            self._stage.output(f"next.{name}", after, FLOAT, ("N", self._vocab_size), "state", alias=name)
