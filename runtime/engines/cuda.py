"""Memory, launches and graphs of one GPU, through cuda.core."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dfc.runtime.engine import Array
from dfc.runtime.errors import RunError

ITEM_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "bool": 1}

_STAGING_BYTES = 64 << 20


class CudaDevice:
    """The first GPU and the one stream on which everything of an artifact runs, in order.

    Raises:
        RunError: cuda-core is missing, or there is no GPU.
    """

    def __init__(self) -> None:
        try:
            import cuda.core as core
        except ImportError as error:
            raise RunError("cuda-core is not installed; install dfc with the extra 'rtx' or 'tensorrt'") from error
        try:
            self._device = core.Device()
            self._device.set_current()
        except Exception as error:
            raise RunError(
                f"no GPU can be used ({_one_line(error)}); run on a machine with one, or build for onnxruntime"
            ) from error
        self._core = core
        self.stream = self._device.create_stream()
        self._pinned = core.LegacyPinnedMemoryResource()
        self._staging: Any = None
        self.launches = 0
        self._completed = 0

    @property
    def capability(self) -> str:
        """Compute capability such as "9.0"."""
        major, minor = self._device.compute_capability
        return f"{major}.{minor}"

    @property
    def name(self) -> str:
        """The GPU's name."""
        return str(self._device.name)

    @property
    def stream_address(self) -> int:
        """The stream as libraries take it."""
        return int(self.stream.handle)

    def allocate(self, size: int, what: str) -> Any:
        """Return a device buffer of `size` bytes; `what` says in messages what it is for.

        Raises:
            RunError: there is not enough memory.
        """
        try:
            return self._device.allocate(max(size, 1), stream=self.stream)
        except Exception as error:
            raise RunError(self._no_room(size, what, error)) from error

    def pin(self, size: int, what: str = "what the GPU reads and writes in place") -> Any:
        """Return host memory of `size` bytes that the GPU reads and writes in place.

        Raises:
            RunError: there is not enough memory.
        """
        try:
            return self._pinned.allocate(max(size, 1))
        except Exception as error:
            raise RunError(
                f"this machine has no {size} bytes of memory for {what} ({_one_line(error)}); close other programs, or"
                " build with a smaller --max-context"
            ) from error

    def _no_room(self, size: int, what: str, error: Exception) -> str:
        if "OUT_OF_MEMORY" not in str(error):
            return f"{self.name} gives no {size} bytes for {what}: {_one_line(error)}"
        return (
            f"{self.name} has no room for {what}: {size} bytes are wanted, {self._free_bytes()}; close other programs"
            " on it, load fewer drafters with --spec, or build with a smaller --max-context"
        )

    def _free_bytes(self) -> str:
        from cuda.bindings import driver

        status, free, total = driver.cuMemGetInfo()
        return f"{free} of {total} are free" if int(status) == 0 else "fewer are free"

    def wait_for(self, launch: int) -> None:
        """Wait until the launch of that number, and with it all before it, is complete."""
        if launch > self._completed:
            self.stream.sync()
            self._completed = self.launches

    def upload(self, target: Any, offset: int, values: Array) -> None:
        """Copy an array into a device buffer, through pinned memory."""
        if self._staging is None:
            self._staging = self.pin(_STAGING_BYTES)
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        staging = host_view(self._staging, _STAGING_BYTES)
        for begin in range(0, data.size, _STAGING_BYTES):
            part = data[begin : begin + _STAGING_BYTES]
            staging[: part.size] = part
            source = self.part(self._staging, 0, part.size)
            source.copy_to(self.part(target, offset + begin, part.size), stream=self.stream)
            self.stream.sync()

    def download(self, source: Any, size: int) -> Array:
        """Return the bytes of a device buffer."""
        host = self.pin(size)
        self.part(source, 0, size).copy_to(self.part(host, 0, size), stream=self.stream)
        self.stream.sync()
        return host_view(host, size).copy()

    def part(self, buffer: Any, offset: int, size: int) -> Any:
        """Return a view of `size` bytes of a buffer, which must outlive it."""
        return self._core.Buffer.from_handle(int(buffer.handle) + offset, size, owner=buffer)

    def record(self, work: Callable[[Any], None]) -> Any:
        """Return the CUDA graph of what `work` enqueues on the stream-like object it gets."""
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        work(builder)
        return builder.end_building().complete()

    def launch(self, graph: Any) -> int:
        """Launch a graph and return its number."""
        graph.launch(self.stream)
        self.launches += 1
        return self.launches

    def time(self, graph: Any) -> float:
        """Launch a graph, wait for it, and return the microseconds it took on the device."""
        options = self._core.EventOptions(timing_enabled=True)
        begin = self.stream.record(options=options)
        self.launch(graph)
        end = self.stream.record(options=options)
        end.sync()
        return float(end - begin) * 1e3


class DeviceBuffer:
    """A tensor in the GPU's memory; reading and writing it from the host copies, and waits."""

    def __init__(self, device: CudaDevice, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self.size = math.prod(shape) * ITEM_SIZES[dtype]
        self._device = device
        self.memory = device.allocate(self.size, f"a tensor of shape {list(shape)}")
        self.clear()

    def write(self, values: Array) -> None:
        self._device.upload(self.memory, 0, to_bfloat16(values) if self.dtype == "bfloat16" else values)

    def read(self) -> Array:
        data = self._device.download(self.memory, self.size)
        if self.dtype == "bfloat16":
            return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(self.shape)
        return data.view(self.dtype).reshape(self.shape)

    def clear(self) -> None:
        self.memory.fill(0, stream=self._device.stream)


class SharedBuffer:
    """A few numbers in host memory that the GPU reads and writes in place: no copy, and no call, on either side."""

    def __init__(self, device: CudaDevice, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self.size = math.prod(shape) * ITEM_SIZES[dtype]
        self._device = device
        self.memory = device.pin(self.size)
        self.array: Array = host_view(self.memory, self.size).view(dtype).reshape(shape)
        self.array[...] = 0
        self.last_launch = 0

    def write(self, values: Array) -> None:
        self._device.wait_for(self.last_launch)
        self.array[...] = values

    def read(self) -> Array:
        self._device.wait_for(self.last_launch)
        return self.array

    def clear(self) -> None:
        self.write(np.zeros_like(self.array))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def host_view(buffer: Any, size: int) -> Array:
    """Return the bytes of pinned memory, which must outlive the array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(buffer.handle)))


def to_bfloat16(values: Array) -> Array:
    """Return float values rounded to the nearest bfloat16, ties to even, as their 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
