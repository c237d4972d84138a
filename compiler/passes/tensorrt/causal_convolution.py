"""`CausalConvolution` becomes a sum of shifted rows, which TensorRT fuses into one kernel with its SiLU."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.tensorrt.precision import FLOAT, cast

TO_THE_END = 2**31 - 1


def lower_causal_convolution(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the convolved rows and the state after all of them."""
    x, weight, state = node.inputs
    taps = node.attributes["taps"].as_int()
    by_tap = op.Split(op.Squeeze(cast(op, weight, FLOAT), [1]), num_outputs=taps, axis=1, _outputs=taps)
    history = op.Concat(state, x, axis=1)
    products = [
        op.Mul(op.Slice(history, [tap], [tap + 1 - taps or TO_THE_END], [1]), op.Reshape(column, [-1]))
        for tap, column in enumerate(by_tap)
    ]
    convolved = products[0]
    for term in products[1:]:
        convolved = op.Add(convolved, term)
    return [op.Mul(convolved, op.Sigmoid(convolved)), op.Slice(history, [1 - taps], [TO_THE_END], [1])]
