"""Engines on onnxruntime's CPU provider."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dfc.artifacts import Artifact, Stage
from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.tensors import MAX_ONNX_BYTES, check_model
from dfc.runtime.engine import Array, Buffer, Call, Copy, OpenStage
from dfc.runtime.errors import RunError

BACKEND = "onnxruntime"


class HostBuffer:
    """A contiguous array that sessions read and write in place."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def write(self, values: Array) -> None:
        # What `read` gave is changed already.
        if values is not self.array:
            self.array[...] = values

    def read(self) -> Array:
        return self.array

    def clear(self) -> None:
        self.array.fill(0)


class BoundCall:
    """A session with every tensor bound to a fixed buffer."""

    def __init__(
        self, session: Any, binding: Any, buffers: tuple[HostBuffer, ...], copies: tuple[tuple[Array, Array], ...]
    ) -> None:
        self._session = session
        self._binding = binding
        self._copies = copies
        # The binding holds addresses only; the arrays live as long as the call.
        self._buffers = buffers

    def run(self, end: int) -> None:
        for source, target in self._copies:
            target[...] = source
        self._session.run_with_iobinding(self._binding)


class OnnxruntimeEngine:
    """One stage as an inference session."""

    def __init__(self, stage: Stage, session: Any) -> None:
        self._stage = stage
        self._session = session
        self._outputs = {tensor.name for tensor in stage.outputs}

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        return (1,)

    def fit(self, **sizes: int) -> dict[str, int]:
        return sizes

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return HostBuffer(np.zeros(shape, dtype=dtype))

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self.allocate(dtype, shape)

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        binding = self._session.io_binding()
        held = []
        for name, buffer in buffers.items():
            assert isinstance(buffer, HostBuffer)
            held.append(buffer)
            array = buffer.array
            bind = binding.bind_output if name in self._outputs else binding.bind_input
            bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return BoundCall(self._session, binding, tuple(held), tuple(copied_elements(copy) for copy in copies))


def copied_elements(copy: Copy) -> tuple[Array, Array]:
    """Return the elements that a copy reads and those it writes."""
    source, target = copy.source, copy.target
    assert isinstance(source, HostBuffer)
    assert isinstance(target, HostBuffer)
    written = target.array.reshape(-1)[copy.offset : copy.offset + source.array.size]
    return source.array.reshape(-1)[: written.size], written


def open_engines(artifact: Artifact) -> OpenStage:
    """Return what loads this artifact's stages.

    Raises:
        RunError: onnxruntime is not installed.
    """
    library()
    return lambda stage: load_engine(artifact, stage)


def load_engine(artifact: Artifact, name: str) -> OnnxruntimeEngine:
    """Load one stage from the artifact.

    Raises:
        RunError: the stage has no engine for onnxruntime, or onnxruntime is missing or cannot load it.
        ArtifactError: the engine is damaged, or reads weights outside the artifact's files.
    """
    stage = artifact.manifest.stages.get(name)
    engines = stage.engines.get(BACKEND, ()) if stage else ()
    if stage is None or not engines:
        raise RunError(f"{artifact.root} has no {BACKEND} engine for the stage {name}; build it again")
    return OnnxruntimeEngine(stage, open_session(artifact, engines[0].path, session_options(artifact)))


def session_options(artifact: Artifact) -> Any:
    """Return the options of every session on an artifact.

    Raises:
        RunError: onnxruntime is not installed.
    """
    options = library().SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    weights = artifact.path("weights")
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights))
    return options


def open_session(artifact: Artifact, path: str, options: Any) -> Any:
    """Return the session of one engine file.

    Raises:
        RunError: onnxruntime cannot load it.
        ArtifactError: the engine is damaged, or reads weights outside the artifact's files.
    """
    onnxruntime = library()
    model = read_bounded(artifact.path(path), MAX_ONNX_BYTES)
    check_model(model, f"{artifact.root}: engine {path}", artifact.manifest)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RunError(f"onnxruntime {onnxruntime.__version__} cannot load {path}: {error}") from error


@functools.cache
def library() -> Any:
    """Return the onnxruntime module, with one thread pool for all sessions of the process.

    With a pool each, the waiting threads of one stage take the cores of the next. Sessions that the process makes
    besides must set ``use_per_session_threads`` to False.

    Raises:
        RunError: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise RunError("onnxruntime is not installed; install dfc with the extra 'cpu' or 'cuda'") from error
    onnxruntime.set_global_thread_pool_sizes(len(os.sched_getaffinity(0)), 1)
    return onnxruntime
