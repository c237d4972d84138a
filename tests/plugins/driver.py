"""Launch a compiled kernel through the CUDA driver, on torch's tensors, exactly as its `Launch` says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dfc.plugins.compilation import compile_kernel
from dfc.plugins.kernel import Kernel, Launch

TORCH_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
}
_GUARD_BYTES = 256
_POISON = 0xA5


class LoadedKernel:
    """A kernel's PTX for this GPU, loaded into torch's context."""

    def __init__(self, kernel: Kernel) -> None:
        from cuda.bindings import driver

        self._driver = driver
        torch.zeros(1, device="cuda")
        major, minor = torch.cuda.get_device_capability()
        compiled = compile_kernel(kernel, f"{major}.{minor}")
        self._module = self._done(driver.cuModuleLoadData(compiled.ptx.encode() + b"\0"))
        self._function = self._done(driver.cuModuleGetFunction(self._module, compiled.name.encode()))

    def bind(
        self, launch: Launch[int], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> Callable[[], None]:
        """Return a function that launches on torch's current stream: inputs, integers, outputs, as TensorRT passes."""
        arguments = [
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in inputs),
            *(ctypes.c_int(value) for value in launch.extra_arguments),
            *(ctypes.c_void_p(tensor.data_ptr()) for tensor in outputs),
        ]
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))

        def start(keep: Any = (arguments, inputs, outputs)) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            grid, block = (launch.grid, 1, 1), (launch.threads, 1, 1)
            self._done(
                self._driver.cuLaunchKernel(self._function, *grid, *block, 0, stream, ctypes.addressof(addresses), 0)
            )

        return start

    def run(
        self, launch: Launch[int], inputs: Sequence[torch.Tensor], outputs: Sequence[tuple[Sequence[int], str]]
    ) -> list[torch.Tensor]:
        """Launch once into poisoned memory, check that nothing beside the outputs was written, and return them."""
        guarded = [_Guarded(shape, TORCH_DTYPES[dtype]) for shape, dtype in outputs]
        self.bind(launch, [tensor.contiguous() for tensor in inputs], [output.tensor for output in guarded])()
        torch.cuda.synchronize()
        for output in guarded:
            output.check()
        return [output.tensor for output in guarded]

    def _done(self, result: tuple[Any, ...]) -> Any:
        assert result[0] == self._driver.CUresult.CUDA_SUCCESS, result[0]
        return result[1] if len(result) > 1 else None


class _Guarded:
    """An output whose every byte is poison, with poisoned bytes before and after it."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        size = torch.empty(tuple(shape), dtype=dtype).nbytes
        self._memory = torch.full((size + 2 * _GUARD_BYTES,), _POISON, dtype=torch.uint8, device="cuda")
        self.tensor = self._memory[_GUARD_BYTES : _GUARD_BYTES + size].view(dtype).view(tuple(shape))

    def check(self) -> None:
        for guard in (self._memory[:_GUARD_BYTES], self._memory[-_GUARD_BYTES:]):
            assert bool((guard == _POISON).all()), "the kernel wrote outside its output"
