"""`AddCounts` becomes a fused sum of comparisons: TensorRT would need a plugin for a scattered addition."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def lower_add_counts(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the counts with the amounts added at the ids."""
    counts, ids, amounts = node.inputs
    vocabulary = op.Range(0, node.attributes["vocab_size"].as_int(), 1)
    here = op.Equal(op.Unsqueeze(ids, [2]), vocabulary)
    added = op.ReduceSum(op.Where(here, op.Unsqueeze(amounts, [2]), 0.0), [1], keepdims=0)
    return [op.Add(counts, added)]
