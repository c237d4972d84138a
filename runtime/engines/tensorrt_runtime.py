"""Deserialising engines with TensorRT's or TensorRT-RTX's runtime, and running them on bound addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dfc.artifacts import Engine as EngineFile
from dfc.runtime.engines.cuda import CudaDevice
from dfc.runtime.engines.cuda_weights import DeviceWeights
from dfc.runtime.errors import RunError

CreateContext = Callable[[Any, Any], Any]
"""Makes an execution context, without memory of its own, from the bindings module and an engine."""


class TensorRTRuntime:
    """One library on one GPU. Engines run one after the other, so that they share their scratch memory."""

    def __init__(self, backend: str, library: Any, device: CudaDevice, create_context: CreateContext) -> None:
        self.backend = backend
        self.device = device
        self.library = library
        self._create_context = create_context
        self._logger = library.Logger(library.Logger.ERROR)
        self._runtime = library.Runtime(self._logger)
        self._scratch: Any = None
        self._dtypes = {
            library.DataType.FLOAT: "float32",
            library.DataType.BF16: "bfloat16",
            library.DataType.HALF: "float16",
            library.DataType.INT64: "int64",
            library.DataType.INT32: "int32",
            library.DataType.BOOL: "bool",
        }

    def load(self, path: Path, file: EngineFile) -> LoadedEngine:
        """Load one engine.

        Raises:
            RunError: it is for another GPU or library version, or does not fit into the GPU's memory.
        """
        if file.compute_capabilities and self.device.capability not in file.compute_capabilities:
            raise RunError(
                f"{path} is for compute capability {', '.join(file.compute_capabilities)} and this GPU,"
                f" {self.device.name}, has {self.device.capability}; build with --compute-capability"
                f" {self.device.capability}"
            )
        engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise RunError(
                f"{self.backend} {self.library.__version__} cannot read {path} on this GPU, {self.device.name} of"
                f" compute capability {self.device.capability}; it was built with version {file.library_version}"
            )
        context = self._create_context(self.library, engine)
        if context is None:
            raise RunError(f"{self.backend} cannot make {path} ready to run on {self.device.name}")
        return LoadedEngine(self, engine, context)

    def dtype(self, dtype: Any) -> str:
        """Return a type's name as the manifest spells it."""
        return self._dtypes[dtype]

    def scratch(self, size: int) -> Any:
        """Return scratch memory of at least `size` bytes."""
        if self._scratch is None or self._scratch.size < size:
            # Graphs already recorded go on using the memory they know: keep it.
            self._old = (getattr(self, "_old", ()), self._scratch)
            self._scratch = self.device.allocate(size)
        return self._scratch


class LoadedEngine:
    """One engine with its execution context."""

    def __init__(self, runtime: TensorRTRuntime, engine: Any, context: Any) -> None:
        self._runtime = runtime
        self._engine = engine
        self._context = context
        names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        self.dtypes = {name: runtime.dtype(engine.get_tensor_dtype(name)) for name in names}
        mode = runtime.library.TensorIOMode
        self._inputs = [name for name in names if engine.get_tensor_mode(name) == mode.INPUT]
        self._outputs = [name for name in names if engine.get_tensor_mode(name) == mode.OUTPUT]
        self._unread: dict[str, Any] = {}

    def bind(self, addresses: Mapping[str, int], weights: DeviceWeights) -> None:
        """Set the address of every tensor: inputs that nobody gives are weights, outputs nobody wants go nowhere."""
        size = int(self._engine.device_memory_size_v2)
        if size:
            self._context.set_device_memory(int(self._runtime.scratch(size).handle), size)
        for name in self._inputs:
            address = addresses[name] if name in addresses else weights.address(name)
            self._set(name, address)
        for name in self._outputs:
            self._set(name, addresses[name] if name in addresses else self._nowhere(name))
        self._warm_up()

    def enqueue(self, stream: int) -> None:
        """Enqueue one run on a stream.

        Raises:
            RunError: the library refuses.
        """
        if not self._context.execute_async_v3(stream):
            raise RunError(f"{self._runtime.backend} failed to start {self._engine.name}")

    def _set(self, name: str, address: int) -> None:
        if not self._context.set_tensor_address(name, address):
            raise RunError(f"{self._runtime.backend} refuses the memory of tensor {name}")

    def _nowhere(self, name: str) -> int:
        if name not in self._unread:
            count = 1
            for dimension in self._engine.get_tensor_shape(name):
                count *= dimension
            self._unread[name] = self._runtime.device.allocate(count * 8)
        return int(self._unread[name].handle)

    def _warm_up(self) -> None:
        """Run once before recording: the library compiles kernels in a first run."""
        self.enqueue(self._runtime.device.stream_address)
        self._runtime.device.stream.sync()
