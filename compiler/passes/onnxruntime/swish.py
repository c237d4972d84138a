"""Swish becomes QuickGelu with alpha 1, the same function under the name onnxruntime has a kernel for."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def lower_swish(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x * sigmoid(x)``."""
    return [op.QuickGelu(node.inputs[0], alpha=1.0, _domain="com.microsoft")]
