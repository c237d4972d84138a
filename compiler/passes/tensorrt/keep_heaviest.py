"""`KeepHeaviest` becomes a search with several cuts at once.

TensorRT-RTX's builder takes time exponential in the length of a chain of halvings (18 of them: 10 s, 26: more than ten
minutes). Eight parts in a round, summed over the last axis, took 442 us on an H200 for 8 rows of 248,077 scores and two
searches; 32 parts in five rounds 4,970 us, and with the parts on the last axis the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

WAYS, ROUNDS = 8, 9
"""Parts of the range in a round; together 27 halvings, under the spacing of a row's largest scores in float32."""


def lower_keep_heaviest(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return which scores are above the highest cut with too much weight above it."""
    scores, weights, limit = node.inputs
    low = op.Sub(op.ReduceMin(scores, [2], keepdims=1), 1.0)
    width = op.Sub(op.ReduceMax(scores, [2], keepdims=1), low)
    parts = op.Constant(value=ir.tensor((np.arange(1, WAYS, dtype=np.float32) / WAYS).reshape(1, 1, -1)))
    # [N, J, cuts, V]
    by_score = op.Unsqueeze(scores, [2])
    by_weight = weights if _is_one_for_all(weights) else op.Unsqueeze(weights, [2])
    for _ in range(ROUNDS):
        cuts = op.Add(low, op.Mul(width, parts))
        is_above = op.Greater(by_score, op.Unsqueeze(cuts, [3]))
        above = op.ReduceSum(op.Where(is_above, by_weight, 0.0), [3], keepdims=0)
        too_low = op.Cast(op.GreaterOrEqual(above, limit), to=ir.DataType.FLOAT)
        width = op.Mul(width, 1.0 / WAYS)
        low = op.Add(low, op.Mul(width, op.ReduceSum(too_low, [2], keepdims=1)))
    return [op.Greater(scores, low)]


def _is_one_for_all(weights: ir.Value | None) -> bool:
    return weights is not None and weights.shape is not None and len(weights.shape) == 1
