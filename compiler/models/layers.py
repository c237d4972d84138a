"""Layers that several models share."""

from __future__ import annotations

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export import ops
from dfc.compiler.export.ops import is_dequantised
from dfc.compiler.export.weights import Weights

INT64 = ir.DataType.INT64
FLOAT = ir.DataType.FLOAT


def rms_norm(op: OpBuilder, x: ir.Value, weight: ir.Value, epsilon: float) -> ir.Value:
    """Return ``weight * x / rms(x)`` over the last axis."""
    return op.RMSNormalization(x, weight, axis=-1, epsilon=epsilon)


def one_plus(op: OpBuilder, weight: ir.Value) -> ir.Value:
    """Return ``1 + weight`` in float32: how Qwen3.5 stores the weights of its norms (semantics E)."""
    return op.Add(weight, 1.0)


def head_norm(op: OpBuilder, x: ir.Value, weight: ir.Value, num_heads: int, head_dim: int, epsilon: float) -> ir.Value:
    """Normalise each head of x [N, T, heads * head_dim]."""
    by_head = op.Reshape(x, [0, 0, num_heads, head_dim])
    return op.Reshape(rms_norm(op, by_head, weight, epsilon), [0, 0, num_heads * head_dim])


def gated_mlp(op: OpBuilder, x: ir.Value, weights: Weights, prefix: str) -> ir.Value:
    """Return ``down(silu(gate(x)) * up(x))``."""
    gate = ops.linear(op, x, weights.float32(f"{prefix}.gate_proj.weight"))
    up = ops.linear(op, x, weights.float32(f"{prefix}.up_proj.weight"))
    return ops.linear(op, op.Mul(op.Swish(gate), up), weights.float32(f"{prefix}.down_proj.weight"))


def embed(op: OpBuilder, ids: ir.Value, table: ir.Value) -> ir.Value:
    """Look up rows of a table [V, H] as stored, in float32."""
    if is_dequantised(table):
        return ops.dequantised_rows(op, table, ids)
    rows = op.Gather(table, ids, axis=0)
    return rows if table.dtype == FLOAT else op.Cast(rows, to=FLOAT)


def row_positions(op: OpBuilder, starts: ir.Value, rows_of: ir.Value) -> ir.Value:
    """Return ``starts[n] + t`` [N, T] for the T rows (axis 1) of `rows_of`; starts [N]."""
    rows = indices(op, rows_of, 1)
    return op.Add(op.Unsqueeze(starts, [1]), rows)


def indices(op: OpBuilder, x: ir.Value, axis: int) -> ir.Value:
    """Return 0, 1, .. for every index of an axis of x."""
    return op.Range(0, op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0]), 1)


def take_rows(op: OpBuilder, x: ir.Value, rows: ir.Value) -> ir.Value:
    """Return x[n, rows[n, j]] [N, J, ..] of x [N, T, ..]; rows [N, J]."""
    return op.GatherND(x, op.Unsqueeze(rows, [2]), batch_dims=1)


def real_tokens(op: OpBuilder, logits: ir.Value, spec: TargetSpec) -> ir.Value:
    """Return logits [N, rows, V] of the tokenizer's tokens alone: rows of the head that only pad it are left out."""
    if spec.candidate_vocab_size == spec.vocab_size:
        return logits
    return op.Slice(logits, [0], [spec.candidate_vocab_size], [2])
