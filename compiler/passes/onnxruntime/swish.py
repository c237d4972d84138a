"""Swish becomes QuickGelu with alpha 1, the same function under the name onnxruntime has a kernel for."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def swish(op: OpBuilder, x: ir.Value | None) -> ir.Value:
    """Return ``x * sigmoid(x)``."""
    result = op.QuickGelu(x, alpha=1.0, _domain="com.microsoft")
    result.dtype = ir.DataType.FLOAT
    return result


def lower_swish(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the operator in place of a node."""
    return [swish(op, node.inputs[0])]
