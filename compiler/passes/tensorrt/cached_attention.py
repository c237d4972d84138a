"""`CachedAttention` becomes a rotation, an update of the caches in place, and attention in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.models.layers import row_positions
from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.precision import BFLOAT16, FLOAT, cast
from dfc.compiler.passes.tensorrt.shapes import EngineShape, sizes
from dfc.compiler.passes.tensorrt.split_attention import (
    attend,
    combine,
    group_query,
    in_pieces,
    key_positions,
)


def cached_attention_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's shape."""

    def lower_cached_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        query, key, value, key_cache, value_cache, lengths, _, cosine, sine = node.inputs
        assert query is not None
        assert lengths is not None
        names = ("num_heads", "num_kv_heads", "rotary_dim")
        num_heads, num_kv_heads, rotary_dim = (node.attributes[name].as_int() for name in names)
        positions = row_positions(op, lengths, query)
        # Rows past the valid ones may lie behind the table, where any position does.
        in_table = op.Min(positions, op.Sub(op.Shape(cosine, end=1), 1))
        query, key = (
            op.RotaryEmbedding(x, cosine, sine, in_table, num_heads=heads, rotary_embedding_dim=rotary_dim)
            for x, heads in ((query, num_heads), (key, num_kv_heads))
        )
        head_dim = sizes(key_cache)[3]
        updated = []
        for new, cache in ((key, key_cache), (value, value_cache)):
            by_head = op.Transpose(op.Reshape(new, [0, 0, num_kv_heads, head_dim]), perm=[0, 2, 1, 3])
            updated.append(_append(op, cache, by_head, lengths))
        keys, values = (
            in_pieces(op, _first(op, cache, shape.context), shape.piece, num_kv_heads, head_dim) for cache in updated
        )
        seen = op.LessOrEqual(key_positions(op, shape.context, shape.piece), op.Unsqueeze(positions, [1, 3]))
        grouped = group_query(op, query, num_heads, num_kv_heads, head_dim)
        parts = [attend(op, grouped, keys, values, seen, num_heads // num_kv_heads, shape.piece)]
        return [combine(op, parts, num_heads, head_dim), *updated]

    return lower_cached_attention


def _append(op: OpBuilder, cache: ir.Value | None, new: ir.Value, lengths: ir.Value) -> ir.Value:
    """Write rows [N, kv_heads, rows, head_dim] at `lengths` [N] into a cache [N, kv_heads, C, head_dim].

    TensorRT updates only a cache that is an engine input, in place. A drafter's scratch cache is a value in the graph
    and gets its one row by selection.
    """
    assert cache is not None
    new.dtype = FLOAT
    rounded = cast(op, new, BFLOAT16)
    if cache.is_graph_input():
        updated = op.TensorScatter(cache, rounded, lengths, axis=2)
    else:
        positions = op.Constant(value=ir.tensor(np.arange(sizes(cache)[2], dtype=np.int64)))
        here = op.Equal(positions, op.Unsqueeze(lengths, [1]))
        updated = op.Where(op.Unsqueeze(here, [1, 3]), rounded, cache)
    updated.dtype, updated.shape = BFLOAT16, cache.shape
    return updated


def _first(op: OpBuilder, cache: ir.Value, context: int) -> ir.Value:
    return cache if sizes(cache)[2] == context else op.Slice(cache, [0], [context], [2])
