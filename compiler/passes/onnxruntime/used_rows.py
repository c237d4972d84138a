"""`UsedRows` becomes a slice as long as the longest sequence: rows not in use cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder


def lower_used_rows(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the first rows of the first input."""
    x, counts = node.inputs
    axis, room = (node.attributes[name].as_int() for name in ("axis", "room"))
    end = op.ReduceMax(counts, keepdims=1)
    return [op.Slice(x, [0], op.Add(end, room) if room else end, [axis])]
