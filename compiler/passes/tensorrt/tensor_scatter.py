"""`TensorScatter` takes its rows in the cache's type."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.tensorrt.precision import BFLOAT16, cast


def lower_tensor_scatter(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the updated cache."""
    cache, rows, lengths = node.inputs
    assert cache is not None
    updated = op.TensorScatter(cache, cast(op, rows, BFLOAT16), lengths, axis=node.attributes["axis"].as_int())
    updated.dtype, updated.shape = BFLOAT16, cache.shape
    return [updated]
