"""One stage on TensorRT or TensorRT-RTX: an engine for every size it was built for, each call a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dfc.artifacts import Artifact, Stage, Tensor
from dfc.artifacts import Engine as EngineFile
from dfc.runtime.engine import Buffer, Call, Copy
from dfc.runtime.engines.cuda import CudaDevice, DeviceBuffer, SharedBuffer
from dfc.runtime.engines.cuda_weights import DeviceWeights
from dfc.runtime.engines.static_sizes import StaticSizes, for_context
from dfc.runtime.engines.tensorrt_runtime import LoadedEngine, TensorRTRuntime
from dfc.runtime.errors import RunError


class GraphCall:
    """One launch: a graph for each number of cache rows that an engine looks at."""

    def __init__(self, device: CudaDevice, graphs: Sequence[tuple[int, Any]], shared: Sequence[SharedBuffer]) -> None:
        self._device = device
        self._graphs = graphs
        self._shared = shared

    def run(self, end: int) -> None:
        number = self._device.launch(for_context(self._graphs, end))
        for buffer in self._shared:
            buffer.last_launch = number


class TensorRTEngine:
    """One stage; its engines are loaded when a call first needs them."""

    def __init__(self, artifact: Artifact, name: str, runtime: TensorRTRuntime, weights: DeviceWeights) -> None:
        self._artifact = artifact
        self._runtime = runtime
        self._device = runtime.device
        self._weights = weights
        stage = artifact.manifest.stages.get(name)
        self._files = stage.engines.get(runtime.backend, ()) if stage else ()
        if stage is None or not self._files:
            raise RunError(f"{artifact.root} has no {runtime.backend} engine for the stage {name}; build it again")
        self._sizes = StaticSizes(stage, self._files)
        self._loaded: dict[str, LoadedEngine] = {}
        self._stage = self._with_engine_types(stage)

    @property
    def stage(self) -> Stage:
        return self._stage

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        return self._sizes.rows

    def fit(self, **sizes: int) -> dict[str, int]:
        return self._sizes.fit(sizes)

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return DeviceBuffer(self._device, dtype, shape)

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return SharedBuffer(self._device, dtype, shape)

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        files = self._sizes.engines({name: _placed(buffer).shape for name, buffer in buffers.items()})
        held = [*buffers.values(), *(buffer for copy in copies for buffer in (copy.source, copy.target))]
        shared = [buffer for buffer in held if isinstance(buffer, SharedBuffer)]
        graphs = [(file.sizes["context"], self._record(self._load(file), buffers, copies)) for file in files]
        return GraphCall(self._device, graphs, shared)

    def _record(self, engine: LoadedEngine, buffers: Mapping[str, Buffer], copies: Sequence[Copy]) -> Any:
        addresses = {name: int(_placed(buffer).memory.handle) for name, buffer in buffers.items()}
        engine.bind(addresses, self._weights)

        def work(stream: Any) -> None:
            for copy in copies:
                _enqueue_copy(self._device, copy, stream)
            engine.enqueue(int(getattr(stream, "stream", stream).handle))

        return self._device.record(work)

    def _load(self, file: EngineFile) -> LoadedEngine:
        if file.path not in self._loaded:
            path = self._artifact.path(file.path)
            self._loaded[file.path] = self._runtime.load(path, file, self._artifact.manifest)
        return self._loaded[file.path]

    def _with_engine_types(self, stage: Stage) -> Stage:
        """Return the stage with the types that its engines really have: caches are narrower than the graph says."""
        engine = self._load(self._files[0])

        def typed(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple(
                tensor.model_copy(update={"dtype": engine.dtypes.get(tensor.name, tensor.dtype)}) for tensor in tensors
            )

        return stage.model_copy(update={"inputs": typed(stage.inputs), "outputs": typed(stage.outputs)})


def _placed(buffer: Buffer) -> DeviceBuffer | SharedBuffer:
    assert isinstance(buffer, DeviceBuffer | SharedBuffer)
    return buffer


def _enqueue_copy(device: CudaDevice, copy: Copy, stream: Any) -> None:
    source, target = _placed(copy.source), _placed(copy.target)
    begin = copy.offset * (source.size // max(1, math.prod(source.shape)))
    size = min(source.size, target.size - begin)
    device.part(source.memory, 0, size).copy_to(device.part(target.memory, begin, size), stream=stream)
