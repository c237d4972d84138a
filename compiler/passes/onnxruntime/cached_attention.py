"""`CachedAttention` becomes GroupQueryAttention, which rotates, appends in place and attends in one node."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

INT32 = ir.DataType.INT32

ROTARY_MULTIPLE = 16
"""GroupQueryAttention rotates only numbers of channels that this divides."""


def lower_cached_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the attention output and both caches."""
    query, key, value, key_cache, value_cache, lengths, valid, cosine, sine = node.inputs
    names = ("num_heads", "num_kv_heads", "rotary_dim")
    num_heads, num_kv_heads, rotary_dim = (node.attributes[name].as_int() for name in names)
    totals = op.Add(lengths, valid)
    seqlens = op.Cast(op.Sub(totals, 1), to=INT32)
    # The operator wants at least the number of rows, padding included, and takes exactly that number for a first
    # prompt, where it ignores what is cached: so one more than either.
    rows = op.Squeeze(op.Shape(query, start=1, end=2), [0])
    longest = op.Cast(op.Add(op.Max(op.ReduceMax(totals, keepdims=0), rows), 1), to=INT32)
    rotates = rotary_dim % ROTARY_MULTIPLE == 0
    if not rotates:
        positions = _positions(op, query, lengths, cosine)
        query, key = (
            op.RotaryEmbedding(rows, cosine, sine, positions, num_heads=heads, rotary_embedding_dim=rotary_dim)
            for rows, heads in ((query, num_heads), (key, num_kv_heads))
        )
    tables = (cosine, sine) if rotates else (None, None)
    # Sequences of one call may have different numbers of rows, which the last input says.
    unused = [None] * 7
    return op.GroupQueryAttention(
        query,
        key,
        value,
        key_cache,
        value_cache,
        seqlens,
        longest,
        *tables,
        *unused,
        op.Cast(valid, to=INT32),
        num_heads=num_heads,
        kv_num_heads=num_kv_heads,
        do_rotary=int(rotates),
        _domain="com.microsoft",
        _outputs=3,
    )


def _positions(op: OpBuilder, query: ir.Value | None, lengths: ir.Value | None, cosine: ir.Value | None) -> ir.Value:
    """Return [N, T]; rows past a sequence's valid ones may lie behind the table, where any position does."""
    count = op.Squeeze(op.Shape(query, start=1, end=2), [0])
    positions = op.Add(op.Unsqueeze(lengths, [1]), op.Range(0, count, 1))
    return op.Min(positions, op.Sub(op.Shape(cosine, end=1), 1))
