"""`CachedAttention` becomes GroupQueryAttention, which rotates, appends in place and attends in one node."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

INT32 = ir.DataType.INT32


def lower_cached_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the attention output and both caches."""
    query, key, value, key_cache, value_cache, lengths, valid, cosine, sine = node.inputs
    totals = op.Add(lengths, valid)
    seqlens = op.Cast(op.Sub(totals, 1), to=INT32)
    # One more than the longest: the operator takes "total = rows" for a first prompt and then ignores what is cached.
    longest = op.Cast(op.Add(op.ReduceMax(totals, keepdims=0), 1), to=INT32)
    unused = [None] * 7
    return op.GroupQueryAttention(
        query,
        key,
        value,
        key_cache,
        value_cache,
        seqlens,
        longest,
        cosine,
        sine,
        *unused,
        op.Cast(valid, to=INT32),
        num_heads=node.attributes["num_heads"].as_int(),
        kv_num_heads=node.attributes["num_kv_heads"].as_int(),
        do_rotary=1,
        _domain="com.microsoft",
        _outputs=3,
    )
