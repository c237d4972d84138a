"""`GroupedConv` on TensorRT-RTX: what a product gives is shifted by another product.

TensorRT-RTX 1.6.1 computes wrong rows where padding, slicing or concatenation shifts what follows a product of two
matrices with a transposed operand (H200: 42% of DFlash2's proposals are then those of float32, else 97%; the same
graphs are right on onnxruntime). A product with a matrix of ones below the diagonal moves the rows exactly, in one
small kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast as typed

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.tensorrt.precision import BFLOAT16, product
from dfc.plugins.grouped_conv.body import attributes_of, emit_grouped_conv, shift_by_padding


def lower_grouped_conv(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the function body, with a shift that fits what the rows come from."""
    hidden, coefficients, base, *residual = typed("Sequence[ir.Value]", node.inputs)
    shift = shift_by_product if _follows_gemm(hidden) else shift_by_padding
    return [emit_grouped_conv(op, hidden, coefficients, base, *residual, **attributes_of(node), shift=shift)]


def shift_by_product(op: OpBuilder, hidden: ir.Value, tap: int) -> ir.Value:
    """Return rows [N, B, H] moved down by `tap`, zeros before them; exact for rows that are bfloat16 values."""
    rows = op.Range(0, op.Squeeze(op.Shape(hidden, start=1, end=2)), 1)
    below = op.Equal(op.Unsqueeze(rows, [0, 2]), op.Add(op.Unsqueeze(rows, [0, 1]), tap))
    return product(op, op.Cast(below, to=BFLOAT16), hidden)


def _follows_gemm(value: ir.Value) -> bool:
    node = value.producer()
    while node is not None and node.op_type in ("Cast", "Reshape"):
        value = typed("ir.Value", node.inputs[0])
        node = value.producer()
    return node is not None and node.op_type == "Gemm"
