"""The feed-forward of a decoder layer: dense, or a mixture of experts."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import DenseSpec, FeedForwardSpec
from dfc.compiler.export import ops
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.layers import gated_mlp


def feed_forward(op: OpBuilder, x: ir.Value, weights: Weights, spec: FeedForwardSpec, prefix: str) -> ir.Value:
    """Return the layer's output for rows x [N, T, H]."""
    if isinstance(spec, DenseSpec):
        return gated_mlp(op, x, weights, prefix)
    chosen = ops.experts(
        op,
        x,
        ops.linear(op, x, weights.float32(f"{prefix}.gate.weight")),
        weights.float32(f"{prefix}.experts.gate_up_proj"),
        weights.float32(f"{prefix}.experts.down_proj"),
        experts_per_token=spec.experts_per_token,
    )
    gate = op.Sigmoid(ops.linear(op, x, weights.float32(f"{prefix}.shared_expert_gate.weight")))
    return op.Add(chosen, op.Mul(gate, gated_mlp(op, x, weights, f"{prefix}.shared_expert")))
