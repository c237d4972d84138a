"""Runs one composite operator through the onnxruntime backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.engines.onnxruntime import compile_graph
from dfc.compiler.export.stage import StageBuilder
from dfc.runtime.engine import Array
from dfc.runtime.engines.onnxruntime import library

Author = Callable[[OpBuilder, dict[str, ir.Value]], Sequence[ir.Value]]


class Compiled:
    """A stage of given inputs, compiled; every dimension but the last is dynamic unless `static` names the input."""

    def __init__(
        self, inputs: Mapping[str, Array], author: Author, *, static: Sequence[str] = (), rows: int = 1
    ) -> None:
        stage = StageBuilder("test", "target")
        values = {
            name: stage.input(name, ir.DataType.from_numpy(array.dtype), _shape(name, array, static))
            for name, array in inputs.items()
        }
        for index, value in enumerate(author(stage.op, values)):
            dtype = value.dtype or ir.DataType.FLOAT
            stage.output(f"output_{index}", value, dtype, [f"o{index}_{axis}" for axis in range(4)])
            # The outputs' ranks differ between tests: leave their shapes to the runtime.
            value.shape = None
        self.model = compile_graph(stage.finish(rows))
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
