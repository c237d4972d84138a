"""`dfc::TopCandidates` in standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

OP_TYPE = "TopCandidates"


def emit_top_candidates(op: OpBuilder, logits: ir.Value, *, k: int, vocab_size: int) -> tuple[ir.Value, ir.Value]:
    """Return the `k` largest of the first `vocab_size` logits [N, S, V] of each row, largest first, and their ids
    int64, both [N, S, k]."""
    real = op.Slice(logits, [0], [vocab_size], [2])
    values, ids = op.TopK(real, [k], axis=-1, _outputs=2)
    return values, ids


def lower(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the body in place of a node."""
    (logits,) = node.inputs
    assert logits is not None
    sizes = {name: node.attributes[name].as_int() for name in ("k", "vocab_size")}
    return emit_top_candidates(op, logits, **sizes)
