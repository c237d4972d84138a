"""Where values change between bfloat16 (products, caches) and float32 (everything between, the residuals first).

DFlash2's residuals overflow float16 (design), and TensorRT's networks are strongly typed: casts stand in the graph.
"""

from __future__ import annotations

import onnx_ir as ir
from onnxscript import OpBuilder

FLOAT = ir.DataType.FLOAT
BFLOAT16 = ir.DataType.BFLOAT16


def cast(op: OpBuilder, value: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """Return the value in a type; nothing is written where it has that type."""
    assert value is not None
    if value.dtype == dtype:
        return value
    result = op.Cast(value, to=dtype)
    result.dtype, result.shape = dtype, value.shape
    return result


def product(op: OpBuilder, a: ir.Value | None, b: ir.Value | None) -> ir.Value:
    """Return ``a @ b`` from bfloat16 operands, summed in float32 and rounded to bfloat16, as float32."""
    result = op.MatMul(cast(op, a, BFLOAT16), cast(op, b, BFLOAT16))
    result.dtype = BFLOAT16
    return cast(op, result, FLOAT)
