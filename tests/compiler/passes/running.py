"""Runs one composite operator as a backend lowers it, in float32 and on onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.engines.onnxruntime import compile_graph
from dfc.compiler.engines.tensorrt_graph import engine_graph
from dfc.compiler.engines.tensorrt_rtx import body_rules
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.passes.tensorrt.shapes import EngineShape
from dfc.runtime.engine import Array
from dfc.runtime.engines.onnxruntime import library

Author = Callable[[OpBuilder, dict[str, ir.Value]], Sequence[ir.Value]]


class Compiled:
    """A stage of given inputs, compiled; every dimension but the last is dynamic unless `static` names the input.

    For `tensorrt` every dimension is the array's; attention looks at `context` cache rows, `piece` at a time.
    """

    def __init__(
        self,
        inputs: Mapping[str, Array],
        author: Author,
        *,
        static: Sequence[str] = (),
        rows: int = 1,
        backend: str = "onnxruntime",
        sizes: Mapping[str, int] | None = None,
        context: int = 0,
        piece: int = 1,
    ) -> None:
        stage = StageBuilder("test", "target")
        static = static if backend == "onnxruntime" else list(inputs)
        values = {
            name: stage.input(name, ir.DataType.from_numpy(array.dtype), _shape(name, array, static))
            for name, array in inputs.items()
        }
        outputs = author(stage.op, values)
        for index, value in enumerate(outputs):
            dtype = value.dtype or ir.DataType.FLOAT
            stage.output(f"output_{index}", value, dtype, [f"o{index}_{axis}" for axis in range(4)])
        if backend == "onnxruntime":
            for value in outputs:
                # The outputs' ranks differ between tests: leave their shapes to the runtime.
                value.shape = None
            self.model = compile_graph(stage.finish(rows))
        else:
            dimensions = {f"o{index}_{axis}": 1 for index in range(len(outputs)) for axis in range(4)}
            shape = EngineShape(dimensions | dict(sizes or {}), context, piece)
            self.model = in_float32(engine_graph(stage.finish(rows), shape, body_rules()).model)
        options = library().SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 3
        self._session = library().InferenceSession(self.model, options, providers=["CPUExecutionProvider"])

    @property
    def op_types(self) -> list[str]:
        """The operators of the lowered graph, in order."""
        return [node.op_type for node in onnx.load_from_string(self.model).graph.node]

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the outputs."""
        result: list[Array] = self._session.run(None, dict(inputs))
        return result


def _shape(name: str, array: Array, static: Sequence[str]) -> list[int | str]:
    if name in static:
        return list(array.shape)
    return [*(f"{name}_{axis}" for axis in range(array.ndim - 1)), *array.shape[-1:]]


def in_float32(model: ir.Model) -> bytes:
    """Return a graph for TensorRT with float32 for bfloat16, so that onnxruntime can check its arithmetic."""
    proto = ir.serde.serialize_model(model)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for node in proto.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == onnx.TensorProto.BFLOAT16:
                attribute.i = onnx.TensorProto.FLOAT
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    data: bytes = proto.SerializeToString()
    return data
