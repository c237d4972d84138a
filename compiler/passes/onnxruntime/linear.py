"""`Linear` becomes MatMul; the transposed weight is a constant that onnxruntime folds and packs when it loads."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def lower_linear(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x @ weight.T``, plus the bias if there is one."""
    x, weight, *bias = node.inputs
    product = op.MatMul(x, op.Transpose(weight, perm=[1, 0]))
    return [op.Add(product, bias[0]) if bias else product]
