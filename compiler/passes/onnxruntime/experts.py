"""`Experts` becomes onnxruntime's MoE, which computes the chosen experts alone."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.onnxruntime.dequantised import MICROSOFT

INTERLEAVED = 1
"""swiglu_fusion: gate and up rows alternate, the one layout that the kernel for processors takes."""


def lower_experts(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the weighted sum of the chosen experts; the interleaved weight is a constant, folded when it loads."""
    x, router_logits, gate_up, down = node.inputs
    assert gate_up is not None
    assert gate_up.shape is not None
    experts, rows, hidden = gate_up.shape.numpy()
    halves = op.Transpose(op.Reshape(gate_up, [experts, 2, rows // 2, hidden]), perm=[0, 2, 1, 3])
    output = op.MoE(
        x,
        # The kernel takes the softmax itself, over the chosen experts.
        op.Reshape(router_logits, [-1, experts]),
        op.Reshape(halves, [experts, rows, hidden]),
        None,
        down,
        k=node.attributes["experts_per_token"].as_int(),
        activation_type="swiglu",
        activation_alpha=1.0,
        activation_beta=0.0,
        swiglu_fusion=INTERLEAVED,
        normalize_routing_weights=1,
        _domain=MICROSOFT,
    )
    return [output]
