"""`KeepHeaviest` becomes a bisection of each row's range of scores: small operators, the same for any limit."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

BISECTIONS = 26
"""Halvings: down to about the spacing of a row's largest scores in float32."""


def lower_keep_heaviest(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return which scores are above the highest cut with too much weight above it."""
    scores, weights, limit = node.inputs
    low = op.Sub(op.ReduceMin(scores, [2], keepdims=1), 1.0)
    span = op.Sub(op.ReduceMax(scores, [2], keepdims=1), low)
    halves = op.Constant(value=ir.tensor([0.5**step for step in range(1, BISECTIONS + 1)], dtype=ir.DataType.FLOAT))
    for step in op.Split(op.Mul(span, halves), num_outputs=BISECTIONS, axis=2, _outputs=BISECTIONS):
        middle = op.Add(low, step)
        # A product, not Where: onnxruntime takes three to five times as long for that.
        above = op.ReduceSum(
            op.Mul(op.Cast(op.Greater(scores, middle), to=ir.DataType.FLOAT), weights), [2], keepdims=1
        )
        low = op.Where(op.GreaterOrEqual(above, limit), middle, low)
    return [op.Greater(scores, low)]
