"""`dfc::GroupedConv` in standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import onnx_ir as ir
from onnxscript import OpBuilder

OP_TYPE = "GroupedConv"


def emit_grouped_conv(
    op: OpBuilder,
    hidden: ir.Value,
    coefficients: ir.Value,
    base: ir.Value,
    residual: ir.Value | None = None,
    *,
    side: int,
    taps: int,
    group_size: int,
    dtype: ir.DataType = ir.DataType.FLOAT,
) -> ir.Value:
    """Return ``sum_t (base[side, t, c] + coefficients[j, side, t, c // group_size]) * hidden[j - t, c]`` (+ residual).

    hidden and residual [N, B, H]; coefficients [N, B, 2 * taps * groups] in (side, tap, group) order; base [2, taps,
    H]; rows before the block's first count as zero. Inputs and result have `dtype`; the sum is in float32, rounded
    once.
    """
    if dtype != ir.DataType.FLOAT:
        hidden, coefficients, base = (op.Cast(value, to=ir.DataType.FLOAT) for value in (hidden, coefficients, base))
        residual = None if residual is None else op.Cast(residual, to=ir.DataType.FLOAT)
    # Both sides' kernels [N, B, 2 * taps * H]: the nodes are the same for both, so that a backend computes them once.
    dynamic = op.Reshape(coefficients, [0, 0, 2 * taps, -1, 1])
    static = op.Reshape(base, [2 * taps, -1, group_size])
    kernels = op.Reshape(op.Add(dynamic, static), [0, 0, -1])
    kernel = op.Split(kernels, num_outputs=2, axis=-1, _outputs=2)[side]
    products = op.Mul(kernel, _tapped_rows(op, hidden, taps))
    output = op.ReduceSum(op.Reshape(products, [0, 0, taps, -1]), [2], keepdims=0) if taps > 1 else products
    if residual is not None:
        output = op.Add(output, residual)
    return output if dtype == ir.DataType.FLOAT else op.Cast(output, to=dtype)


def lower(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the body in place of a node."""
    side, taps, group_size = (node.attributes[name].as_int() for name in ("side", "taps", "group_size"))
    hidden, coefficients, base, *residual = cast("Sequence[ir.Value]", node.inputs)
    return [emit_grouped_conv(op, hidden, coefficients, base, *residual, side=side, taps=taps, group_size=group_size)]


def _tapped_rows(op: OpBuilder, hidden: ir.Value, taps: int) -> ir.Value:
    """Return [N, B, taps * H]: rows j, j - 1, ..; zeros before the first."""
    # Padding in front and cropping as much behind moves the rows and keeps their number.
    shifted = [op.Pad(hidden, [tap, -tap], None, [1]) for tap in range(1, taps)]
    return op.Concat(hidden, *shifted, axis=-1) if shifted else hidden
