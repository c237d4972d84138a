"""`GatedDeltaNet` becomes the contributed operator of the same name."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

NO_OP_GATE = -1.0e4
"""A raw decay and beta of this size make a row leave the state as it is: exp(-0) and sigmoid(-inf)."""


def lower_gated_delta_net(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the output rows and the state after the committed ones."""
    mixed, decay, beta, decay_scale, decay_bias, state, *committed = node.inputs
    if committed:
        decay, beta = (op.Where(committed[0], gate, NO_OP_GATE) for gate in (decay, beta))
    return contributed_gated_delta_net(op, mixed, decay, beta, decay_scale, decay_bias, state)


def contributed_gated_delta_net(
    op: OpBuilder,
    mixed: ir.Value | None,
    decay: ir.Value | None,
    beta: ir.Value | None,
    decay_scale: ir.Value | None,
    decay_bias: ir.Value | None,
    state: ir.Value | None,
    *,
    counts: ir.Value | None = None,
    state_update_capacity: int = 0,
) -> Sequence[ir.Value]:
    """Write the operator; with a capacity there is a third output, for the first `counts` [N] int32 rows."""
    captured = {"state_update_capacity": state_update_capacity} if state_update_capacity else {}
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
        *([counts] if captured else []),
        update_rule="gated_delta",
        gate_activation="softplus",
        beta_activation="sigmoid",
        qk_l2_norm=1,
        **captured,
        _domain="com.microsoft",
        _outputs=3 if captured else 2,
    )
