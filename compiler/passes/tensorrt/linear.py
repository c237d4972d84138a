"""`Linear` and `QueryAndGate` become products with the weight as the checkpoint stores it.

The weight is an engine input (`weight_inputs`), so nothing may be computed from it in a call: the transposition is part
of the product, and a woven weight's result is taken apart instead of the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.tensorrt.precision import BFLOAT16, FLOAT, cast
from dfc.compiler.passes.tensorrt.shapes import sizes


def lower_linear(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x @ weight.T`` (+ bias) in float32."""
    x, weight, *bias = node.inputs
    return [add_bias(op, _linear(op, x, weight), bias)]


def add_bias(op: OpBuilder, result: ir.Value, bias: Sequence[ir.Value | None]) -> ir.Value:
    """Return a product plus its bias, if it has one."""
    return op.Add(result, cast(op, bias[0], FLOAT)) if bias else result


def lower_query_and_gate(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the query and the gate."""
    x, weight = node.inputs
    num_heads, head_dim = (node.attributes[name].as_int() for name in ("num_heads", "head_dim"))
    woven = op.Reshape(_linear(op, x, weight), [0, 0, num_heads, 2 * head_dim])
    halves = op.Split(woven, num_outputs=2, axis=-1, _outputs=2)
    return [op.Reshape(half, [0, 0, num_heads * head_dim]) for half in halves]


def _linear(op: OpBuilder, x: ir.Value | None, weight: ir.Value | None) -> ir.Value:
    outputs, inputs = sizes(weight)
    # TensorRT reads a transposed operand as it lies in a product of two matrices only; for more dimensions it copies.
    rows = op.Reshape(cast(op, x, BFLOAT16), [-1, inputs])
    product = op.Gemm(rows, cast(op, stored_weight(weight), BFLOAT16), transB=1)
    result = op.Reshape(product, op.Concat(op.Shape(x, end=-1), [outputs], axis=0))
    result.dtype = BFLOAT16
    return cast(op, result, FLOAT)


def stored_weight(weight: ir.Value | None) -> ir.Value:
    """Return the weight below the cast to float32 that the stage graph asks for: products take it as it is stored."""
    assert weight is not None
    node = weight.producer()
    stored = node.inputs[0] if node is not None and node.op_type == "Cast" else weight
    assert stored is not None
    return stored
