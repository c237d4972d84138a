"""`BlockAttention` becomes Attention over the context and the block, under an explicit mask."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

HIDDEN_SCORE = -1.0e30
"""Added to the score of a key that a row must not see; a row always sees itself, so no row is empty."""


def lower_block_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the attention output [N, B, heads * head_dim]."""
    query, key, value, context_key, context_value, starts = node.inputs
    num_heads, num_kv_heads = (node.attributes[name].as_int() for name in ("num_heads", "num_kv_heads"))
    keys, values = (op.Concat(*pair, axis=1) for pair in ((context_key, key), (context_value, value)))
    mask = _mask(op, node, query, starts, op.Shape(context_key, start=1, end=2))
    return [op.Attention(query, keys, values, mask, q_num_heads=num_heads, kv_num_heads=num_kv_heads)]


def _mask(op: OpBuilder, node: ir.Node, query: ir.Value | None, starts: ir.Value | None, context: ir.Value) -> ir.Value:
    """Return [N, 1, B, context + B] of 0 or HIDDEN_SCORE: the context first, the block's rows behind it."""
    window = node.attributes["window"].as_int()
    batch, block = op.Shape(query, end=1), op.Shape(query, start=1, end=2)
    rows = op.Range(0, op.Squeeze(block, [0]), 1)
    positions = op.Range(0, op.Squeeze(context, [0]), 1)
    row_positions = op.Unsqueeze(op.Add(op.Unsqueeze(starts, [1]), rows), [2])
    in_context = op.Less(positions, op.Unsqueeze(starts, [1, 2]))
    if window:
        in_context = op.And(in_context, op.Greater(positions, op.Sub(row_positions, window)))
    in_context = op.Expand(in_context, op.Concat(batch, block, context, axis=0))
    distances = op.Sub(op.Unsqueeze(rows, [1]), rows)
    # The reference's window has two sides, which matters for windows shorter than the block only.
    in_block = op.Less(op.Abs(distances), window or block)
    if node.attributes["causal"].as_int():
        in_block = op.And(in_block, op.GreaterOrEqual(distances, 0))
    seen = op.Concat(in_context, op.Expand(in_block, op.Concat(batch, block, block, axis=0)), axis=2)
    return op.Unsqueeze(op.Where(seen, 0.0, HIDDEN_SCORE), [1])
