"""`BlockAttention` becomes Attention over the used part of the caches, under an explicit mask."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

HIDDEN_SCORE = -1.0e30
"""Added to the score of a key that a row must not see; the row itself is always seen, so no row is empty."""


def lower_block_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the attention output [N, B, heads * head_dim]."""
    query, key_cache, value_cache, starts = node.inputs
    num_heads = node.attributes["num_heads"].as_int()
    block = op.Shape(query, start=1, end=2)
    ends = op.Add(starts, block)
    longest = op.ReduceMax(ends, keepdims=1)
    keys, values = (op.Slice(cache, [0], longest, [2]) for cache in (key_cache, value_cache))
    by_head = op.Transpose(op.Reshape(query, _split_heads(query, num_heads)), perm=[0, 2, 1, 3])
    mask = _mask(op, node, starts, ends, block, longest)
    attended = op.Attention(by_head, keys, values, mask)
    return [op.Reshape(op.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, -1])]


def _split_heads(query: ir.Value | None, num_heads: int) -> list[int]:
    assert query is not None
    return [0, 0, num_heads, -1]


def _mask(
    op: OpBuilder, node: ir.Node, starts: ir.Value | None, ends: ir.Value, block: ir.Value, longest: ir.Value
) -> ir.Value:
    """Return [N, 1, B, keys] of 0 or HIDDEN_SCORE."""
    window = node.attributes["window"].as_int()
    key_positions = op.Unsqueeze(op.Range(0, op.Squeeze(longest, [0]), 1), [0, 1])
    row_positions = op.Unsqueeze(
        op.Add(op.Unsqueeze(starts, [1]), op.Range(0, op.Squeeze(block, [0]), 1)), [2]
    )
    if node.attributes["causal"].as_int():
        seen = op.LessOrEqual(key_positions, row_positions)
    else:
        seen = op.Less(key_positions, op.Unsqueeze(ends, [1, 2]))
    if window:
        seen = op.And(seen, op.Greater(key_positions, op.Sub(row_positions, window)))
    mask = op.Unsqueeze(op.Where(seen, 0.0, HIDDEN_SCORE), [1])
    return op.Expand(mask, op.Concat([1, 1], block, [1], axis=0))
