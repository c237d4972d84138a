"""`Linear` becomes MatMul; the transposed weight is a constant that onnxruntime folds and packs when it loads.

A weight of four-bit integers stays as it is stored: MatMulNBits multiplies with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.ops import is_dequantised
from dfc.compiler.passes.onnxruntime.dequantised import FLOAT, MICROSOFT

FLOAT32_ACTIVATIONS = 1
"""MatMulNBits' accuracy_level: activations rounded to integers would make verified rows part from single ones."""


def lower_linear(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x @ weight.T``, plus the bias if there is one."""
    x, weight, *bias = node.inputs
    assert weight is not None
    if is_dequantised(weight):
        product = _packed_product(op, x, weight)
    else:
        product = op.MatMul(x, op.Transpose(weight, perm=[1, 0]))
    return [op.Add(product, bias[0]) if bias else product]


def _packed_product(op: OpBuilder, x: ir.Value | None, weight: ir.Value) -> ir.Value:
    node = weight.producer()
    assert node is not None
    assert weight.shape is not None
    values, scales, zero_points, _, order = node.inputs
    rows, columns = weight.shape.numpy()
    return op.MatMulNBits(
        x if order is None else op.Gather(x, order, axis=-1),
        values,
        op.Cast(scales, to=FLOAT),
        *(() if zero_points is None else (zero_points,)),
        K=columns,
        N=rows,
        bits=4,
        block_size=node.attributes["block_columns"].as_int(),
        accuracy_level=FLOAT32_ACTIVATIONS,
        _domain=MICROSOFT,
    )
