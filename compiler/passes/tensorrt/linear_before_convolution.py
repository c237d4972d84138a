"""A `Linear` whose rows a grouped convolution shifts gets a product of its own form on TensorRT-RTX.

TensorRT-RTX 1.6.1 computes wrong rows where the shift of `dfc.plugins.grouped_conv.body` follows a product of two
matrices with a transposed operand (H200: DFlash2's accepted drafts fall from 1,038 to 863 over the golden prompts; the
same graphs are right on onnxruntime). The form that it gets right copies the weight, transposed, in every call.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.stage import DFC_DOMAIN
from dfc.compiler.passes.tensorrt.linear import add_bias, lower_linear, stored_weight
from dfc.compiler.passes.tensorrt.precision import BFLOAT16, FLOAT, cast


def lower_linear_before_convolution(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x @ weight.T`` (+ bias) in float32."""
    if not any(_is_convolved(user) for user in node.outputs[0].consumers()):
        return lower_linear(op, node)
    x, weight, *bias = node.inputs
    transposed = op.Transpose(cast(op, stored_weight(weight), BFLOAT16), perm=[1, 0])
    product = op.MatMul(cast(op, x, BFLOAT16), transposed)
    product.dtype = BFLOAT16
    return [add_bias(op, cast(op, product, FLOAT), bias)]


def _is_convolved(node: ir.Node) -> bool:
    return node.domain == DFC_DOMAIN and node.op_type == "GroupedConv"
