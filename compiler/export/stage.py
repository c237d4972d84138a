"""One stage graph under construction, and the finished graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.artifacts import ComponentName, Role, Tensor
from dfc.compiler.export.nodes import NodeBuilder
from dfc.compiler.export.origins import name_origins

OPSET = 24
"""Version of the standard operators in every stage graph."""

IR_VERSION = 10
"""Version of the ONNX file format that opset 24 and onnxruntime agree on."""

DFC_DOMAIN = "dfc"


@dataclass(frozen=True)
class StageGraph:
    """What one call of a stage takes and gives, and the graph that computes it.

    ``round_rows`` is the most rows a decoding round gives it; calls with more are prompt chunks. ``draft_tokens`` is
    the most a drafter's stage returns.
    """

    name: str
    component: ComponentName
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    model: ir.Model
    round_rows: int = 1
    draft_tokens: int = 0


class StageBuilder:
    """Collects the nodes, inputs and outputs of one stage."""

    def __init__(self, name: str, component: ComponentName) -> None:
        self._name = name
        self._component = component
        opsets = {"": OPSET, DFC_DOMAIN: 1}
        self._graph = ir.Graph((), (), nodes=(), opset_imports=opsets, name=name)
        self._builder = NodeBuilder(self._graph)
        self._inputs: list[Tensor] = []
        self._outputs: list[Tensor] = []

    @property
    def op(self) -> OpBuilder:
        """Appends a node of any operator: `op.MatMul(a, b)`."""
        return self._builder.op

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str], role: Role = "input") -> ir.Value:
        """Declare a graph input; a string in `shape` is a dynamic dimension."""
        value = ir.val(name, dtype, tuple(shape))
        self._graph.inputs.append(value)
        self._inputs.append(Tensor(name=name, dtype=dtype_name(dtype), shape=tuple(shape), role=role))
        return value

    def output(
        self,
        name: str,
        value: ir.Value,
        dtype: ir.DataType,
        shape: Sequence[int | str],
        role: Role = "output",
        alias: str | None = None,
    ) -> None:
        """Declare a graph output; `alias` names the input whose buffer or next value it is."""
        if value.is_graph_input() or value.is_initializer() or value.is_graph_output():
            value = self.op.Identity(value)
        value.name = name
        value.dtype = dtype
        value.shape = ir.Shape(tuple(shape))
        self._graph.outputs.append(value)
        self._outputs.append(Tensor(name=name, dtype=dtype_name(dtype), shape=tuple(shape), role=role, alias=alias))

    def weight(self, name: str, tensor: ir.ExternalTensor) -> ir.Value:
        """Register a weight whose bytes stay where they are."""
        value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def finish(self, round_rows: int = 1, draft_tokens: int = 0) -> StageGraph:
        """Return the finished stage; the arguments as in `StageGraph`."""
        name_origins(self._graph)
        model = ir.Model(self._graph, ir_version=IR_VERSION, producer_name="dfc")
        inputs, outputs = tuple(self._inputs), tuple(self._outputs)
        return StageGraph(self._name, self._component, inputs, outputs, model, round_rows, draft_tokens)


def dtype_name(dtype: ir.DataType) -> str:
    """Return a type's name as the manifest spells it."""
    return {ir.DataType.FLOAT: "float32"}.get(dtype, dtype.name.lower())
