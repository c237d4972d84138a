"""Greedy verification inside the target graph (semantics F)."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.models.layers import INT64


@dataclass(frozen=True)
class Verdict:
    """How many drafts the target accepts, how many rows that commits, and the token it puts after them; each [N]
    int64."""

    accepted: ir.Value
    committed: ir.Value
    anchor: ir.Value


def judge(
    op: OpBuilder, input_ids: ir.Value, choices: ir.Value, rows: ir.Value, forced: ir.Value, valid: ir.Value
) -> Verdict:
    """Accept the longest run of drafts that equal the target's choices.

    ``choices[n, j]`` [N, J] is the target's token after row ``rows[n, j]`` of input_ids [N, T]; the draft it judges is
    the row after, when that row is below `valid`.
    """
    following = op.Add(rows, 1)
    width = op.Shape(input_ids, start=1, end=2)
    drafts = op.GatherElements(input_ids, op.Min(following, op.Sub(width, 1)), axis=1)
    is_draft = op.Less(following, op.Unsqueeze(valid, [1]))
    matches = op.And(op.Equal(drafts, choices), is_draft)
    misses_so_far = op.CumSum(op.Cast(op.Not(matches), to=INT64), 1)
    accepted = op.ReduceSum(op.Cast(op.Equal(misses_so_far, 0), to=INT64), [1], keepdims=0)
    anchor = op.Squeeze(op.GatherElements(choices, op.Unsqueeze(accepted, [1]), axis=1), [1])
    return Verdict(accepted=accepted, committed=op.Add(forced, accepted), anchor=anchor)
