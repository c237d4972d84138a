"""`AddCounts` becomes one scattered addition."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def lower_add_counts(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the counts with the amounts added at the ids."""
    counts, ids, amounts = node.inputs
    return [op.ScatterElements(counts, ids, amounts, axis=1, reduction="add")]
