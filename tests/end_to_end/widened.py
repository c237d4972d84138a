"""A backend for tests: the graphs that TensorRT gets, widened to float32 and run by onnxruntime.

Static shapes, padding, weights as inputs and every lowering rule are those of the GPU backends; only the arithmetic is
exact enough to be compared with golden values, and no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dfc.artifacts import Artifact, Stage
from dfc.artifacts import Engine as EngineFile
from dfc.compiler.engines.backend import Backend, CompiledEngine, EngineRequest, Report
from dfc.compiler.engines.shapes import PROMPT_ROWS
from dfc.compiler.engines.tensorrt_rtx import body_rules
from dfc.compiler.engines.tensorrt_stage import compile_shapes
from dfc.compiler.export.stage import StageGraph
from dfc.runtime.engine import Array, Buffer, Call, Copy, OpenStage
from dfc.runtime.engines.cuda_weights import parts_of
from dfc.runtime.engines.onnxruntime import BoundCall, HostBuffer, copied_elements, library
from dfc.runtime.engines.static_sizes import StaticSizes, for_context
from tests.compiler.passes.running import in_float32

NAME = "widened"


def compile_stage(stage: StageGraph, request: EngineRequest, report: Report) -> Iterator[CompiledEngine]:
    """Yield what `tensorrt-rtx` would build, as ONNX."""
    return compile_shapes(stage, request, report, body_rules(), lambda model, name: in_float32(model))


BACKEND = Backend("onnxruntime", lambda: "test", "bfloat16", compile_stage, prompt_rows=PROMPT_ROWS)


def open_engines(artifact: Artifact) -> OpenStage:
    """Return what loads this artifact's stages."""
    weights: dict[str, Array] = {}
    return lambda stage: WidenedEngine(artifact, stage, weights)


class WidenedEngine:
    """One stage: a session for every size."""

    def __init__(self, artifact: Artifact, name: str, weights: dict[str, Array]) -> None:
        self._artifact = artifact
        self._weights = weights
        self._stage = artifact.manifest.stages[name]
        self._sizes = StaticSizes(self._stage, self._stage.engines[NAME])
        self._sessions: dict[str, Any] = {}

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        return self._sizes.rows

    def fit(self, **sizes: int) -> dict[str, int]:
        return self._sizes.fit(sizes)

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return HostBuffer(np.zeros(shape, dtype))

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self.allocate(dtype, shape)

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        shapes = {name: buffer.array.shape for name, buffer in buffers.items() if isinstance(buffer, HostBuffer)}
        calls = [(file.sizes["context"], self._bind(file, buffers, copies)) for file in self._sizes.engines(shapes)]
        return ContextCall(calls)

    def _bind(self, file: EngineFile, buffers: Mapping[str, Buffer], copies: Sequence[Copy]) -> BoundCall:
        if file.path not in self._sessions:
            options = library().SessionOptions()
            options.use_per_session_threads = False
            model = self._artifact.path(file.path).read_bytes()
            self._sessions[file.path] = library().InferenceSession(model, options, providers=["CPUExecutionProvider"])
        session = self._sessions[file.path]
        binding = session.io_binding()
        held = []
        for tensor in session.get_inputs():
            buffer = buffers[tensor.name] if tensor.name in buffers else HostBuffer(self._weight(tensor.name))
            held.append(_bind(binding.bind_input, tensor.name, buffer))
        for tensor in session.get_outputs():
            if tensor.name in buffers:
                held.append(_bind(binding.bind_output, tensor.name, buffers[tensor.name]))
        return BoundCall(session, binding, tuple(held), tuple(copied_elements(copy) for copy in copies))

    def _weight(self, name: str) -> Array:
        if name not in self._weights:
            weight = self._artifact.manifest.weights[name]
            parts = [part.view(np.float32) for part in parts_of(self._artifact, weight, "float32")]
            self._weights[name] = np.concatenate(parts).reshape(weight.shape)
        return self._weights[name]


class ContextCall:
    """A call on the smallest engine that sees enough cache rows."""

    def __init__(self, calls: Sequence[tuple[int, BoundCall]]) -> None:
        self._calls = calls

    def run(self, end: int) -> None:
        for_context(self._calls, end).run(end)


def _bind(bind: Any, name: str, buffer: Buffer) -> HostBuffer:
    assert isinstance(buffer, HostBuffer)
    array = buffer.array
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    return buffer
