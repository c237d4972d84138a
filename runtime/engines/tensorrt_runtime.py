"""Deserialising engines with TensorRT's or TensorRT-RTX's runtime, and running them on bound addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dfc.artifacts import Engine as EngineFile
from dfc.artifacts import Manifest
from dfc.plugins.library_log import LibraryLog
from dfc.runtime.engines.cuda import ITEM_SIZES, CudaDevice
from dfc.runtime.engines.refusals import MEMORY, Installation, unreadable, wrong_gpu
from dfc.runtime.errors import RunError

if TYPE_CHECKING:
    from engine_library import DataType, ICudaEngine, IExecutionContext, Library, Runtime


class Addresses(Protocol):
    """Where the weights lie."""

    def address(self, name: str) -> int:
        """Return one weight's address."""


CreateContext: TypeAlias = "Callable[[ICudaEngine], IExecutionContext | None]"
"""Makes an execution context, without memory of its own, from an engine."""

Diagnose: TypeAlias = "Callable[[Runtime, bytes], Collection[str]]"
"""Says what a library finds wrong with the bytes of an engine, in the words of `refusals`."""


class TensorRTRuntime:
    """One library on one GPU. Engines run one after the other, so that they share their scratch memory."""

    def __init__(
        self,
        backend: str,
        library: Library,
        device: CudaDevice,
        create_context: CreateContext,
        diagnose: Diagnose = lambda runtime, data: (),
        builds_for: tuple[str, ...] = (),
    ) -> None:
        self.backend = backend
        self.device = device
        self.library = library
        self._create_context = create_context
        self._diagnose = diagnose
        self._builds_for = builds_for
        self._log = LibraryLog()
        # The library keeps no reference of its own.
        self._logger = self._log.logger(library)
        self._runtime = library.Runtime(self._logger)
        # Graphs already recorded go on using the memory they know, so nothing is given back.
        self._scratch: list[Any] = []
        self._dtypes = {
            library.DataType.FLOAT: "float32",
            library.DataType.BF16: "bfloat16",
            library.DataType.HALF: "float16",
            library.DataType.INT64: "int64",
            library.DataType.INT32: "int32",
            library.DataType.BOOL: "bool",
        }

    def load(self, path: Path, file: EngineFile, manifest: Manifest) -> LoadedEngine:
        """Load one engine of the artifact that `manifest` is of.

        Raises:
            RunError: it is for another GPU or library version, or does not fit into the GPU's memory.
        """
        if file.compute_capabilities and self.device.capability not in file.compute_capabilities:
            raise RunError(wrong_gpu(path, file, manifest, self._installation))
        self._log.clear()
        data = path.read_bytes()
        engine = self._runtime.deserialize_cuda_engine(data)
        if engine is None:
            wrong, said = self._diagnose(self._runtime, data), self._log.last_error
            raise RunError(unreadable(path, file, manifest, self._installation, wrong, said))
        context = self._create_context(engine)
        if context is None:
            if "out of memory" in self._log.last_error.lower():
                raise RunError(unreadable(path, file, manifest, self._installation, (MEMORY,), ""))
            raise RunError(f"{self.backend} cannot make {path} ready to run on {self.device.name}{self.reason}")
        return LoadedEngine(self, engine, context)

    @property
    def _installation(self) -> Installation:
        version = str(self.library.__version__)
        return Installation(self.backend, version, self.device.name, self.device.capability, self._builds_for)

    @property
    def reason(self) -> str:
        """What the library said last of what went wrong, in brackets; empty where it said nothing."""
        return f" ({self._log.last_error})" if self._log.last_error else ""

    def dtype(self, dtype: DataType) -> str:
        """Return a type's name as the manifest spells it."""
        return self._dtypes[dtype]

    def scratch(self, size: int) -> Any:
        """Return scratch memory of at least `size` bytes."""
        if not self._scratch or self._scratch[-1].size < size:
            self._scratch.append(self.device.allocate(size, "scratch memory"))
        return self._scratch[-1]


class LoadedEngine:
    """One engine with its execution context."""

    def __init__(self, runtime: TensorRTRuntime, engine: ICudaEngine, context: IExecutionContext) -> None:
        self._runtime = runtime
        self._engine = engine
        self.context = context
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.dtypes = {name: runtime.dtype(engine.get_tensor_dtype(name)) for name in names}
        mode = runtime.library.TensorIOMode
        self.shapes = {name: tuple(engine.get_tensor_shape(name)) for name in names}
        self.scratch_size = int(engine.device_memory_size_v2)
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == mode.INPUT]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) == mode.OUTPUT]
        self._unread: dict[str, Any] = {}
        self._warm = False

    def bind(self, addresses: Mapping[str, int], weights: Addresses) -> None:
        """Set the address of every tensor: inputs that nobody gives are weights, outputs nobody wants go nowhere."""
        if self.scratch_size:
            self.context.set_device_memory(int(self._runtime.scratch(self.scratch_size).handle), self.scratch_size)
        inputs = {name: addresses[name] if name in addresses else weights.address(name) for name in self._inputs}
        outputs = {name: addresses[name] if name in addresses else self._nowhere(name) for name in self._outputs}
        if not self._warm:
            self._warm_up(inputs, outputs)
        self._set(inputs | outputs)

    def enqueue(self, stream: int) -> None:
        """Enqueue one run on a stream.

        Raises:
            RunError: the library refuses.
        """
        if not self.context.execute_async_v3(stream):
            raise RunError(f"{self._runtime.backend} failed to start {self._engine.name}{self._runtime.reason}")

    def _set(self, addresses: Mapping[str, int]) -> None:
        for name, address in addresses.items():
            if not self.context.set_tensor_address(name, address):
                raise RunError(f"{self._runtime.backend} refuses the memory of tensor {name}")

    def _nowhere(self, name: str) -> int:
        if name not in self._unread:
            self._unread[name] = self._runtime.device.allocate(self._size(name), name)
        return int(self._unread[name].handle)

    def _size(self, name: str) -> int:
        return int(math.prod(self.shapes[name])) * ITEM_SIZES[self.dtypes[name]]

    def _warm_up(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> None:
        """Run once before recording, for the library does things only in a first run.

        The buffers may hold a sequence: whatever the run writes, caches in place included, goes to memory that is given
        back.
        """
        in_place = {name: address for name, address in inputs.items() if address in outputs.values()}
        written = [*in_place, *outputs]
        waste = self._runtime.device.allocate(max(self._size(name) for name in written), "a first run")
        self._set({**inputs, **dict.fromkeys(written, int(waste.handle))})
        self.enqueue(self._runtime.device.stream_address)
        self._runtime.device.stream.sync()
        self._warm = True
