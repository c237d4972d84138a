"""Projections of the same rows become one matrix product over the joined weights."""

from __future__ import annotations

import onnx_ir as ir

from dfc.compiler.export import ops
from dfc.compiler.export.origins import last_node, nodes_after, set_origins
from dfc.compiler.export.stage import DFC_DOMAIN
from dfc.compiler.passes.lowering import continue_building, detach, replace_outputs, stored_tensor


def merge_linears(graph: ir.Graph) -> None:
    """Join the `Linear` nodes, without bias, that read the same value and plain weights of the same checkpoint.

    Other stages read what a drafter takes from the target, its head above all: a joined copy would be a second one.
    """
    by_input: dict[tuple[ir.Value, str], list[ir.Node]] = {}
    for node in graph:
        if node.domain == DFC_DOMAIN and node.op_type == "Linear" and len(node.inputs) == 2:
            x, weight = node.inputs
            assert x is not None
            if ops.is_dequantised(weight):
                continue
            by_input.setdefault((x, _checkpoint(weight)), []).append(node)
    op = continue_building(graph)
    for (x, _), nodes in by_input.items():
        if len(nodes) == 1:
            continue
        weights = [node.inputs[1] for node in nodes]
        sizes = [_rows(weight) for weight in weights]
        last = last_node(graph)
        joined = ops.linear(op, x, op.Concat(*weights, axis=0))
        parts = op.Split(joined, sizes, axis=-1, _outputs=len(sizes))
        set_origins(nodes_after(graph, last), nodes)
        for node, part in zip(nodes, parts, strict=True):
            replace_outputs(graph, node.outputs, [part])
            detach(node)
        graph.remove(nodes)
    graph.sort()


def _rows(weight: ir.Value | None) -> int:
    assert weight is not None
    assert weight.shape is not None
    rows = weight.shape[0]
    assert isinstance(rows, int)
    return rows


def _checkpoint(weight: ir.Value | None) -> str:
    """Return the folder of the file that a weight lies in, empty for a weight that is computed."""
    tensor = stored_tensor(weight)
    return "" if tensor is None else str(tensor.location).partition("/")[0]
