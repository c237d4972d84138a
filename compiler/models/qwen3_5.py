"""Qwen3.5-class models, dense or mixtures: Gated DeltaNet layers with full attention in between (semantics E)."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.caches import Caches, cache_inputs, cache_shape
from dfc.compiler.models.feed_forward import feed_forward
from dfc.compiler.models.layers import (
    FLOAT,
    embed,
    head_norm,
    one_plus,
    rms_norm,
    take_rows,
)
from dfc.compiler.models.rope import rope_tables
from dfc.compiler.models.trunk import Committed, Rows, StateUpdate, Trunk


@dataclass(frozen=True)
class Placement:
    """Where the rows of an attention layer stand: at ``lengths`` [N] and on, `valid` [N] of them count."""

    lengths: ir.Value
    valid: ir.Value
    cosine: ir.Value
    sine: ir.Value


def run_trunk(stage: StageBuilder, weights: Weights, spec: TargetSpec, rows: Rows) -> Trunk:
    """Build the decoder layers and the final norm."""
    op = stage.op
    placement = Placement(rows.lengths, rows.valid, *rope_tables(op, spec.rope, rows.capacity))
    hidden = embed(op, rows.input_ids, weights.stored(f"{spec.prefix}embed_tokens.weight"))
    layer_outputs: list[ir.Value] = []
    states: list[StateUpdate] = []
    for index, layer_type in enumerate(spec.layer_types):
        prefix, state_prefix = f"{spec.prefix}layers.{index}", f"layers.{index}"
        if layer_type == "full_attention":
            caches = cache_inputs(stage, spec.attention, rows.capacity, state_prefix)
            hidden, updated = attention_layer(op, weights, spec, hidden, prefix, caches, placement)
            states.extend(_cache_update(*pair, spec, rows) for pair in zip(caches, updated, strict=True))
        else:
            hidden, updates = _delta_net_layer(stage, weights, spec, hidden, prefix, state_prefix)
            states.extend(updates)
        layer_outputs.append(hidden)
    hidden = one_plus_norm(op, hidden, weights, f"{spec.prefix}norm.weight", spec.rms_norm_eps)
    return Trunk(hidden, tuple(layer_outputs), tuple(states))


def one_plus_norm(op: OpBuilder, x: ir.Value, weights: Weights, name: str, epsilon: float) -> ir.Value:
    """Normalise with ``1 + weight``."""
    return rms_norm(op, x, one_plus(op, weights.float32(name)), epsilon)


def attention_layer(
    op: OpBuilder,
    weights: Weights,
    spec: TargetSpec,
    hidden: ir.Value,
    prefix: str,
    caches: Caches,
    placement: Placement,
) -> tuple[ir.Value, Caches]:
    """A decoder layer with full attention."""
    normed = one_plus_norm(op, hidden, weights, f"{prefix}.input_layernorm.weight", spec.rms_norm_eps)
    mixed, caches = _gated_attention(op, weights, spec, normed, f"{prefix}.self_attn", caches, placement)
    return _add_feed_forward(op, weights, spec, op.Add(hidden, mixed), prefix), caches


def _delta_net_layer(
    stage: StageBuilder, weights: Weights, spec: TargetSpec, hidden: ir.Value, prefix: str, state_prefix: str
) -> tuple[ir.Value, tuple[StateUpdate, StateUpdate]]:
    op = stage.op
    normed = one_plus_norm(op, hidden, weights, f"{prefix}.input_layernorm.weight", spec.rms_norm_eps)
    mixed, updates = _gated_delta_net(stage, weights, spec, normed, f"{prefix}.linear_attn", state_prefix)
    return _add_feed_forward(op, weights, spec, op.Add(hidden, mixed), prefix), updates


def _add_feed_forward(op: OpBuilder, weights: Weights, spec: TargetSpec, hidden: ir.Value, prefix: str) -> ir.Value:
    normed = one_plus_norm(op, hidden, weights, f"{prefix}.post_attention_layernorm.weight", spec.rms_norm_eps)
    return op.Add(hidden, feed_forward(op, normed, weights, spec.feed_forward, f"{prefix}.mlp"))


def _gated_attention(
    op: OpBuilder,
    weights: Weights,
    spec: TargetSpec,
    x: ir.Value,
    prefix: str,
    caches: Caches,
    placement: Placement,
) -> tuple[ir.Value, Caches]:
    """Full attention whose output is multiplied by a sigmoid gate; the gate comes out of the query projection."""
    attention, epsilon = spec.attention, spec.rms_norm_eps
    query, gate = ops.query_and_gate(
        op,
        x,
        weights.float32(f"{prefix}.q_proj.weight"),
        num_heads=attention.num_heads,
        head_dim=attention.head_dim,
    )
    key = ops.linear(op, x, weights.float32(f"{prefix}.k_proj.weight"))
    value = ops.linear(op, x, weights.float32(f"{prefix}.v_proj.weight"))
    query_norm, key_norm = (one_plus(op, weights.float32(f"{prefix}.{name}_norm.weight")) for name in ("q", "k"))
    attended, *updated = ops.cached_attention(
        op,
        head_norm(op, query, query_norm, attention.num_heads, attention.head_dim, epsilon),
        head_norm(op, key, key_norm, attention.num_kv_heads, attention.head_dim, epsilon),
        value,
        *caches,
        placement.lengths,
        placement.valid,
        placement.cosine,
        placement.sine,
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        rotary_dim=spec.rope.rotary_dim,
    )
    mixed = ops.linear(op, op.Mul(attended, op.Sigmoid(gate)), weights.float32(f"{prefix}.o_proj.weight"))
    return mixed, Caches(*updated)


def _cache_update(before: ir.Value, after: ir.Value, spec: TargetSpec, rows: Rows) -> StateUpdate:
    assert before.name is not None
    return StateUpdate(before.name, cache_shape(spec.attention, rows.capacity), "cache", after, lambda _: after)


def _gated_delta_net(
    stage: StageBuilder, weights: Weights, spec: TargetSpec, x: ir.Value, prefix: str, state_prefix: str
) -> tuple[ir.Value, tuple[StateUpdate, StateUpdate]]:
    """Causal convolution, gated delta rule, gated norm."""
    op, geometry = stage.op, spec.gated_delta_net
    mixed, gate, decay, beta = (
        ops.linear(op, x, weights.float32(f"{prefix}.in_proj_{name}.weight")) for name in ("qkv", "z", "a", "b")
    )
    heads, value_dim = geometry.num_value_heads, geometry.value_head_dim
    history = geometry.conv_kernel_size - 1
    conv_shape = ("N", history, geometry.conv_channels)
    recurrent_shape = ("N", heads, value_dim, geometry.key_head_dim)
    conv_name, recurrent_name = f"{state_prefix}.conv_state", f"{state_prefix}.recurrent_state"
    conv_state = stage.input(conv_name, FLOAT, conv_shape, role="state")
    recurrent_state = stage.input(recurrent_name, FLOAT, recurrent_shape, role="state")

    convolved, next_conv = ops.causal_convolution(
        op, mixed, weights.float32(f"{prefix}.conv1d.weight"), conv_state, taps=history + 1
    )
    parameters = (weights.float32(f"{prefix}.A_log"), weights.float32(f"{prefix}.dt_bias"))
    operands = (convolved, decay, beta, *parameters, recurrent_state)
    output, next_recurrent = ops.gated_delta_net(op, *operands, num_key_heads=geometry.num_key_heads)
    normed = ops.gated_rms_norm(
        op,
        output,
        gate,
        weights.float32(f"{prefix}.norm.weight"),
        epsilon=spec.rms_norm_eps,
    )

    def conv_after(committed: Committed) -> ir.Value:
        # The last rows up to the committed count, those before the call included.
        wanted = op.Add(op.Unsqueeze(committed.count, [1]), list(range(history)))
        return take_rows(op, op.Concat(conv_state, mixed, axis=1), wanted)

    def recurrent_after(committed: Committed) -> ir.Value:
        # Only the recurrence runs again, from the state the call began with; other rows leave it alone.
        return ops.gated_delta_net(op, *operands, committed.mask, num_key_heads=geometry.num_key_heads)[1]

    updates = (
        StateUpdate(conv_name, conv_shape, "state", next_conv, conv_after),
        StateUpdate(recurrent_name, recurrent_shape, "state", next_recurrent, recurrent_after),
    )
    return ops.linear(op, normed, weights.float32(f"{prefix}.out_proj.weight")), updates
