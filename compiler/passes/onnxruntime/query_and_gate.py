"""`QueryAndGate` becomes two linears over constants taken apart once, when onnxruntime loads."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export import ops
from dfc.compiler.export.ops import is_dequantised


def split_query_and_gate(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the query and the gate, each from a `Linear` of its own that may be merged with others."""
    x, weight = node.inputs
    assert x is not None
    num_heads, head_dim = (node.attributes[name].as_int() for name in ("num_heads", "head_dim"))
    if is_dequantised(weight):
        assert weight is not None
        # What is packed cannot be taken apart: the products are.
        woven = op.Reshape(ops.linear(op, x, weight), [0, 0, num_heads, 2 * head_dim])
        parts = op.Split(woven, num_outputs=2, axis=-1, _outputs=2)
        return [op.Reshape(part, [0, 0, num_heads * head_dim]) for part in parts]
    by_head = op.Reshape(weight, [num_heads, 2, head_dim, -1])
    halves = (op.Reshape(op.Gather(by_head, half, axis=1), [num_heads * head_dim, -1]) for half in (0, 1))
    return [ops.linear(op, x, half) for half in halves]
