"""`BlockAttention` becomes attention in pieces to the context, and in one more piece to the block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.precision import BFLOAT16, cast
from dfc.compiler.passes.tensorrt.shapes import EngineShape
from dfc.compiler.passes.tensorrt.split_attention import (
    attend,
    combine,
    group_query,
    in_pieces,
    key_positions,
)


def block_attention_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's shape: the block has 1 + S rows."""
    block = 1 + shape.dimensions["S"]

    def lower_block_attention(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        query, key, value, context_key, context_value, starts = node.inputs
        num_heads, num_kv_heads, head_dim = (
            node.attributes[name].as_int() for name in ("num_heads", "num_kv_heads", "head_dim")
        )
        grouped = group_query(op, query, num_heads, num_kv_heads, head_dim)
        parts = []
        for keys, values, piece, seen in (
            (context_key, context_value, shape.piece, _seen_context(op, node, starts, shape, block)),
            (key, value, block, _seen_block(op, node, block)),
        ):
            by_head = (
                op.Transpose(op.Reshape(cast(op, x, BFLOAT16), [0, 0, num_kv_heads, head_dim]), perm=[0, 2, 1, 3])
                for x in (keys, values)
            )
            keys_in_pieces, values_in_pieces = (in_pieces(op, x, piece, num_kv_heads, head_dim) for x in by_head)
            groups = num_heads // num_kv_heads
            parts.append(attend(op, grouped, keys_in_pieces, values_in_pieces, seen, groups, piece))
        return [combine(op, parts, num_heads, head_dim)]

    return lower_block_attention


def _seen_context(op: OpBuilder, node: ir.Node, starts: ir.Value | None, shape: EngineShape, rows: int) -> ir.Value:
    """Return bool broadcast to [N, pieces, rows, keys]: the rows before the block that its window reaches."""
    window = node.attributes["window"].as_int()
    positions = key_positions(op, shape.context, shape.piece)
    start = op.Unsqueeze(starts, [1, 2, 3])
    seen = op.Less(positions, start)
    if window:
        offsets = np.arange(rows, dtype=np.int64).reshape(1, 1, rows, 1) - window
        seen = op.And(seen, op.Greater(positions, op.Add(start, op.Constant(value=ir.tensor(offsets)))))
    return seen


def _seen_block(op: OpBuilder, node: ir.Node, rows: int) -> ir.Value:
    """Return bool [1, 1, rows, rows]: a constant; the window's two sides as in `dfc.compiler.export.ops`."""
    window = node.attributes["window"].as_int() or rows
    distances = np.arange(rows)[:, None] - np.arange(rows)
    seen = np.abs(distances) < window
    if node.attributes["causal"].as_int():
        seen &= distances >= 0
    return op.Constant(value=ir.tensor(seen[None, None]))
