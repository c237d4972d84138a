"""Nodes by their operators' names: as onnxscript's own builder makes them, and wrong ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest
from onnxscript import GraphBuilder

from dfc.compiler.export.nodes import NodeBuilder

AUTHORS: dict[str, Callable[[Any, ir.Value], ir.Value]] = {
    "attributes in another order": lambda op, x: op.Gemm(x, x, transB=1, alpha=2.0),
    "an input left out": lambda op, x: op.Clip(x, None, 1.0),
    "any number of inputs": lambda op, x: op.Concat(x, x, x, axis=0),
    "an operator without a schema": lambda op, x: op.Linear(x, x, _domain="dfc", rows=2),
}


def graph_of(kind: type[GraphBuilder], author: Callable[[Any, ir.Value], ir.Value]) -> bytes:
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 24, "dfc": 1}, name="test")
    x = ir.val("x", ir.DataType.FLOAT, (2, 2))
    graph.inputs.append(x)
    graph.outputs.append(author(kind(graph).op, x))
    data: bytes = ir.serde.serialize_graph(graph).SerializeToString(deterministic=True)
    return data


@pytest.mark.parametrize("author", AUTHORS.values(), ids=AUTHORS)
def test_graphs_are_those_of_onnxscript(author: Callable[[Any, ir.Value], ir.Value]) -> None:
    assert graph_of(NodeBuilder, author) == graph_of(GraphBuilder, author)


@pytest.mark.parametrize(
    "author, message",
    [
        (lambda op, x: op.MatMul(x), "MatMul takes 2 to 2 inputs, not 1"),
        (lambda op, x: op.Relu(x, x), "Relu takes 1 to 1 inputs, not 2"),
        (lambda op, x: op.Relu(x, slope=1.0), r"Relu: attributes \['slope'\] are unknown or missing"),
        (lambda op, x: op.Concat(x, x), r"Concat: attributes \['axis'\] are unknown or missing"),
    ],
)
def test_wrong_nodes_are_refused(author: Callable[[Any, ir.Value], ir.Value], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        graph_of(NodeBuilder, author)
