"""`dfc::GroupedConv` in standard operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, cast

import onnx_ir as ir
from onnxscript import OpBuilder

OP_TYPE = "GroupedConv"

FLOAT = ir.DataType.FLOAT

Shift = Callable[[OpBuilder, ir.Value, int], ir.Value]
"""Moves rows [N, B, H] down by a number of rows; the first get zeros."""


class Attributes(TypedDict):
    """The attributes of a node."""

    side: int
    taps: int
    group_size: int


def shift_by_padding(op: OpBuilder, hidden: ir.Value, tap: int) -> ir.Value:
    """Pad in front and crop as much behind, which keeps the number of rows."""
    return op.Pad(hidden, [tap, -tap], None, [1])


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
    shift: Shift = shift_by_padding,
) -> ir.Value:
    """Return ``sum_t (base[side, t, c] + coefficients[j, side, t, c // group_size]) * hidden[j - t, c]`` (+ residual).

    hidden and residual [N, B, H]; coefficients [N, B, 2 * taps * groups] in (side, tap, group) order; base [2, taps,
    H]; rows before the block's first count as zero. Inputs have the dtypes that their values say, float32 where they
    say none. The sum is in float32, rounded once: to the residual's dtype where one is given, else to that of hidden.
    """
    output_dtype = (hidden if residual is None else residual).dtype or FLOAT
    hidden, coefficients, base = (_float32(op, value) for value in (hidden, coefficients, base))
    # Every side's and tap's kernel [N, B, H]: both sides write the same nodes, so that a backend computes them once.
    dynamic = op.Reshape(coefficients, [0, 0, 2 * taps, -1, 1])
    static = op.Reshape(base, [2 * taps, -1, group_size])
    kernels = op.Reshape(op.Add(dynamic, static), [0, 0, -1])
    by_tap = op.Split(kernels, num_outputs=2 * taps, axis=-1, _outputs=2 * taps)[side * taps : (side + 1) * taps]
    shifted = [hidden, *(shift(op, hidden, tap) for tap in range(1, taps))]
    terms = [op.Mul(rows, kernel) for rows, kernel in zip(shifted, by_tap, strict=True)]
    if residual is not None:
        terms.append(_float32(op, residual))
    output = op.Sum(*terms) if len(terms) > 1 else terms[0]
    return output if output_dtype == FLOAT else op.Cast(output, to=output_dtype)


def attributes_of(node: ir.Node) -> Attributes:
    """Return a node's attributes."""
    side, taps, group_size = (node.attributes[name].as_int() for name in ("side", "taps", "group_size"))
    return Attributes(side=side, taps=taps, group_size=group_size)


def lower(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the body in place of a node."""
    hidden, coefficients, base, *residual = cast("Sequence[ir.Value]", node.inputs)
    return [emit_grouped_conv(op, hidden, coefficients, base, *residual, **attributes_of(node))]


def _float32(op: OpBuilder, value: ir.Value) -> ir.Value:
    return value if value.dtype in (None, FLOAT) else op.Cast(value, to=FLOAT)
