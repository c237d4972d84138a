"""Verification inside the target graph (semantics F): which rows hold drafts, and how many of them are accepted."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.models.layers import INT64


@dataclass(frozen=True)
class Drafts:
    """What each judged row is asked about: the draft behind it ``tokens`` [N, J], and whether there is one ``present``
    [N, J]."""

    tokens: ir.Value
    present: ir.Value


@dataclass(frozen=True)
class Verdict:
    """How many drafts the target accepts, how many rows that commits, and the token it puts after them; each [N]
    int64."""

    accepted: ir.Value
    committed: ir.Value
    anchor: ir.Value


def find_drafts(op: OpBuilder, input_ids: ir.Value, rows: ir.Value, valid: ir.Value) -> Drafts:
    """Return the drafts that the judged ``rows`` [N, J] of input_ids [N, T] stand before: below `valid` [N]."""
    following = op.Add(rows, 1)
    width = op.Shape(input_ids, start=1, end=2)
    tokens = op.GatherElements(input_ids, op.Min(following, op.Sub(width, 1)), axis=1)
    return Drafts(tokens, op.Less(following, op.Unsqueeze(valid, [1])))


def count_accepted(op: OpBuilder, holds: ir.Value) -> ir.Value:
    """Return the length [N] of the run of drafts that hold [N, J] from the first on."""
    misses_so_far = op.CumSum(op.Cast(op.Not(holds), to=INT64), 1)
    return op.ReduceSum(op.Cast(op.Equal(misses_so_far, 0), to=INT64), [1], keepdims=0)
