"""`Dequantised` becomes arithmetic over constants, which onnxruntime folds to a float32 weight when it loads.

Only four-bit integers that products alone read stay packed, see `linear`. At eight bits onnxruntime's product takes
longer than one with float32 weights: it unpacks all of the weight in every call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.stage import DFC_DOMAIN
from dfc.compiler.passes.lowering import Operator

FLOAT = ir.DataType.FLOAT
UINT8 = ir.DataType.UINT8
MICROSOFT = "com.microsoft"
DEQUANTISED: Operator = (DFC_DOMAIN, "Dequantised")

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def lower_dequantised(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value] | None:
    """Return the weight in float32; None where it stays packed."""
    if stays_packed(node):
        return None
    values, scales, zero_points, tensor_scale, order = node.inputs
    kind = node.attributes["kind"].as_string()
    if kind == "float8":
        result = _scale_blocks(op, node)
    else:
        if kind == "uint8":
            items = op.Cast(values, to=FLOAT)
        elif kind == "uint4":
            items = op.Cast(_nibbles(op, values), to=FLOAT)
        else:
            items = op.Gather(op.Constant(value=ir.tensor(np.concatenate([_E2M1, -_E2M1]))), _codes(op, values), axis=0)
        factors = op.Unsqueeze(op.Cast(scales, to=FLOAT), [-1])
        if kind in ("uint4", "uint8"):
            items = op.Sub(items, _zero(op, zero_points, scales, kind))
        if tensor_scale is not None:
            factors = op.Mul(factors, tensor_scale)
        shape = op.Concat(op.Shape(items, end=-2), [-1], axis=0)
        result = op.Reshape(op.Mul(items, factors), shape)
    if order is not None:
        back = op.Squeeze(op.TopK(order, op.Shape(order), largest=0, _outputs=2)[1])
        result = op.Gather(result, back, axis=-1)
    result.shape = node.outputs[0].shape
    return [result]


def stays_packed(node: ir.Node) -> bool:
    """Return whether a product reads the weight as it is stored."""
    uses = node.outputs[0].uses()
    linears = all((use.node.domain, use.node.op_type) == (DFC_DOMAIN, "Linear") and use.idx == 1 for use in uses)
    return node.attributes["kind"].as_string() == "uint4" and linears


def _zero(op: OpBuilder, zero_points: ir.Value | None, scales: ir.Value | None, kind: str) -> ir.Value | float:
    if zero_points is None:
        return 8.0 if kind == "uint4" else 128.0
    if kind == "uint4":
        # One more than there are groups when their number is odd.
        unpacked = op.Slice(_nibbles(op, zero_points), [0], op.Shape(scales, start=-1), [-1])
    else:
        unpacked = zero_points
    return op.Unsqueeze(op.Cast(unpacked, to=FLOAT), [-1])


def _codes(op: OpBuilder, packed: ir.Value | None) -> ir.Value:
    return op.Cast(_nibbles(op, packed), to=ir.DataType.INT32)


def _nibbles(op: OpBuilder, packed: ir.Value | None) -> ir.Value:
    """Return the low and the high four bits of each byte of the last axis, in turn."""
    fifteen, four = (op.Constant(value=ir.tensor(np.array(number, np.uint8))) for number in (15, 4))
    low, high = op.BitwiseAnd(packed, fifteen), op.BitShift(packed, four, direction="RIGHT")
    pairs = op.Concat(op.Unsqueeze(low, [-1]), op.Unsqueeze(high, [-1]), axis=-1)
    return op.Reshape(pairs, op.Concat(op.Shape(packed, end=-1), [-1], axis=0))


def _scale_blocks(op: OpBuilder, node: ir.Node) -> ir.Value:
    values, scales = node.inputs[:2]
    block_rows, block_columns = (node.attributes[f"block_{axis}"].as_int() for axis in ("rows", "columns"))
    items, factors = op.Cast(values, to=FLOAT), op.Cast(scales, to=FLOAT)
    # Every scale once for each row and column of its block; blocks at the border are cut.
    factors = op.Unsqueeze(factors, [-1])
    factors = op.Expand(factors, op.Concat(op.Shape(scales), [block_columns], axis=0))
    factors = op.Reshape(factors, op.Concat(op.Shape(scales, end=-1), [-1], axis=0))
    factors = op.Slice(factors, [0], op.Shape(items, start=-1), [-1])
    if block_rows > 1:
        columns = op.Shape(items, start=1)
        spread = op.Expand(op.Unsqueeze(factors, [1]), op.Concat([1, block_rows], columns, axis=0))
        factors = op.Slice(op.Reshape(spread, op.Concat([-1], columns, axis=0)), [0], op.Shape(items, end=1), [0])
    return op.Mul(items, factors)
