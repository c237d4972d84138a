"""`UsedRows` becomes a slice to the engine's context, or nothing where there are no more rows than that."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.shapes import EngineShape, sizes


def used_rows_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's shape."""

    def lower_used_rows(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        x, axis = node.inputs[0], node.attributes["axis"].as_int()
        assert x is not None
        if sizes(x)[axis] <= shape.context:
            return [x]
        used = op.Slice(x, [0], [shape.context], [axis])
        used.dtype = x.dtype
        return [used]

    return lower_used_rows
