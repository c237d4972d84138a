"""`GatedRMSNorm` becomes a norm of each head and a gate."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.tensorrt.precision import FLOAT, cast


def lower_gated_rms_norm(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the normed and gated rows."""
    x, gate, weight = node.inputs
    normed = op.RMSNormalization(x, cast(op, weight, FLOAT), axis=-1, epsilon=node.attributes["epsilon"].as_float())
    return [op.Mul(op.Reshape(normed, [0, 0, -1]), op.Mul(gate, op.Sigmoid(gate)))]


def lower_swish(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return ``x * sigmoid(x)``; Swish is newer than TensorRT's parser."""
    x = node.inputs[0]
    return [op.Mul(x, op.Sigmoid(x))]
