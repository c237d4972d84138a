"""`CausalConvolution`, `GatedDeltaNet` and `GatedRMSNorm` become the contributed operators of the same meaning."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

NO_OP_GATE = -1.0e4
"""A raw decay and beta of this size make a row leave the state as it is: exp(-0) and sigmoid(-inf)."""


def lower_causal_convolution(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the convolved rows and the state after all of them."""
    x, weight, state = node.inputs
    return op.CausalConvWithState(
        x,
        weight,
        None,
        state,
        activation="silu",
        channels_last=1,
        ndim=1,
        _domain="com.microsoft",
        _outputs=2,
    )


def lower_gated_delta_net(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the output rows and the state after the committed ones."""
    mixed, decay, beta, decay_scale, decay_bias, state, *committed = node.inputs
    if committed:
        decay, beta = (op.Where(committed[0], gate, NO_OP_GATE) for gate in (decay, beta))
    return op.GatedDeltaNet(
        mixed,
        None,
        None,
        None,
        decay,
        beta,
        state,
        decay_scale,
        decay_bias,
        update_rule="gated_delta",
        gate_activation="softplus",
        beta_activation="sigmoid",
        qk_l2_norm=1,
        _domain="com.microsoft",
        _outputs=2,
    )


def lower_gated_rms_norm(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the normed and gated rows."""
    x, gate, weight = node.inputs
    epsilon = node.attributes["epsilon"].as_float()
    return [op.GatedRMSNorm(x, weight, gate, activation="silu", epsilon=epsilon, _domain="com.microsoft")]
