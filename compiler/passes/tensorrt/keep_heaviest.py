"""`KeepHeaviest` becomes a search with 32 cuts at once.

TensorRT-RTX's builder takes time exponential in the length of a chain of halvings (18 of them: 10 s, 26: more than ten
minutes), and a GPU compares with many cuts in the time of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

WAYS, ROUNDS = 32, 5
"""Parts of the range in a round; together 25 halvings, about the spacing of a row's largest scores in float32."""


def lower_keep_heaviest(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return which scores are above the highest cut with too much weight above it."""
    scores, weights, limit = node.inputs
    low = op.Sub(op.ReduceMin(scores, [2], keepdims=1), 1.0)
    width = op.Sub(op.ReduceMax(scores, [2], keepdims=1), low)
    parts = (np.arange(1, WAYS, dtype=np.float32) / WAYS).reshape(1, 1, -1)
    by_score, by_weight = op.Unsqueeze(scores, [-1]), op.Unsqueeze(weights, [-1])
    for _ in range(ROUNDS):
        # [N, J, cuts]
        cuts = op.Add(low, op.Mul(width, op.Constant(value=ir.tensor(parts))))
        is_above = op.Greater(by_score, op.Unsqueeze(cuts, [2]))
        above = op.ReduceSum(op.Where(is_above, by_weight, 0.0), [2], keepdims=0)
        too_low = op.Cast(op.GreaterOrEqual(above, limit), to=ir.DataType.FLOAT)
        width = op.Mul(width, 1.0 / WAYS)
        low = op.Add(low, op.Mul(width, op.ReduceSum(too_low, [2], keepdims=1)))
    return [op.Greater(scores, low)]
