"""Compile CUDA kernels with NVRTC for a named compute capability; needs no GPU."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dfc.plugins.kernel import Kernel
from dfc.plugins.user_cache import cache_directory, write_cache

_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\(([^)]*)\)", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


class KernelCompilationError(Exception):
    """A kernel cannot be compiled, or is not what its plugin declares; the message is one sentence for the user."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel for one compute capability, and what the manifest records of it.

    `source_sha256` covers source, headers, options and compiler: the same hash, the same PTX.
    """

    name: str
    capability: str
    ptx: str
    source_sha256: str
    ptx_sha256: str
    compiler: str


@dataclass(frozen=True)
class Resources:
    """What one thread needs: registers, bytes of stack and of spills; and bytes of shared memory of a thread block."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


def compile_kernel(kernel: Kernel, capability: str, cache: Path | None = None) -> CompiledKernel:
    """Return the kernel's PTX for a compute capability such as `9.0`, from the cache where it was compiled before.

    `cache` is a directory, by default that of the user. Raises `KernelCompilationError` if NVRTC is missing or refuses,
    or if the PTX's parameters are not `kernel.parameters`.
    """
    options = (*_options(kernel), f"--gpu-architecture=compute_{_digits(capability)}")
    key = _key(kernel, options)
    path = (cache or cache_directory("kernels")) / f"{kernel.name}-{key[:32]}.json"
    compiled = _read(path, key)
    if compiled is None:
        ptx = _compile(kernel, options, "PTX")[0].decode().rstrip("\0")
        compiled = CompiledKernel(kernel.name, capability, ptx, key, _sha256(ptx), _compiler())
        write_cache(path, json.dumps(asdict(compiled)).encode())
    check_parameters(compiled.ptx, kernel.name, kernel.parameters)
    return compiled


def measure_resources(kernel: Kernel, capability: str) -> Resources:
    """Compile down to machine code and return what the assembler says of it."""
    options = (*_options(kernel), f"--gpu-architecture=sm_{_digits(capability)}", "--ptxas-options=-v")
    _, log = _compile(kernel, options, "CUBIN")
    registers, stack, shared = _REGISTERS.search(log), _STACK.search(log), _SHARED.search(log)
    if registers is None or stack is None:
        raise KernelCompilationError(f"the assembler reported no resources for kernel {kernel.name}: {log.strip()}")
    frame, stores, loads = (int(value) for value in stack.groups())
    return Resources(int(registers[1]), frame, stores + loads, int(shared[1]) if shared else 0)


def check_parameters(ptx: str, name: str, declared: Sequence[str]) -> None:
    """Raise `KernelCompilationError` unless the entry `name` has exactly the declared parameters.

    TensorRT passes inputs, 32-bit integers and outputs by position and checks nothing: one parameter more, and the
    kernel reads what is not there.
    """
    for entry, parameters in _ENTRY.findall(ptx):
        if entry == name:
            found = tuple(kind.replace("b", "u", 1) for kind in _PARAMETER.findall(parameters))
            if found != tuple(declared):
                raise KernelCompilationError(
                    f"kernel {name} takes ({', '.join(found)}) but its plugin passes ({', '.join(declared)})"
                )
            return
    raise KernelCompilationError(f"the PTX has no kernel {name}")


def _options(kernel: Kernel) -> tuple[str, ...]:
    return (*(f"--define-macro={name}={value}" for name, value in kernel.defines), "--std=c++17")


def _digits(capability: str) -> str:
    if not re.fullmatch(r"\d+\.\d", capability):
        raise KernelCompilationError(f"compute capability {capability!r} is not of the form 9.0")
    return capability.replace(".", "")


def _key(kernel: Kernel, options: Sequence[str]) -> str:
    parts = [kernel.name, kernel.source, *options, _compiler()]
    for name, text in sorted(kernel.headers.items()):
        parts += [name, text]
    return _sha256(json.dumps(parts))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path, key: str) -> CompiledKernel | None:
    """Return what an earlier compilation left, unless it is damaged."""
    try:
        compiled = CompiledKernel(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    sound = compiled.source_sha256 == key and _sha256(compiled.ptx) == compiled.ptx_sha256
    return compiled if sound else None


def _compiler() -> str:
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return f"NVRTC {major}.{minor}"


def _compile(kernel: Kernel, options: Sequence[str], form: str) -> tuple[bytes, str]:
    """Return the program in the given form, PTX or CUBIN, and the compiler's log."""
    nvrtc = _nvrtc()
    headers = kernel.headers
    texts, names = ([part.encode() for part in parts] for parts in (headers.values(), headers))
    source, name = kernel.source.encode(), f"{kernel.name}.cu".encode()
    program = _done(nvrtc, nvrtc.nvrtcCreateProgram(source, name, len(headers), texts, names))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        # NVRTC writes in place, and bytes of length one are shared by the whole interpreter.
        log = bytearray(_done(nvrtc, nvrtc.nvrtcGetProgramLogSize(program)))
        _done(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
        text = log.decode(errors="replace").rstrip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise KernelCompilationError(f"NVRTC cannot compile kernel {kernel.name} ({status.name}): {text}")
        binary = bytearray(_done(nvrtc, getattr(nvrtc, f"nvrtcGet{form}Size")(program)))
        _done(nvrtc, getattr(nvrtc, f"nvrtcGet{form}")(program, binary))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return bytes(binary), text


def _done(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    """Return the value of a call that succeeded."""
    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise KernelCompilationError(f"NVRTC failed with {status.name}")
    return values[0] if values else None


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise KernelCompilationError(f"kernels are compiled with NVRTC: install dfc[tensorrt] ({error})") from error
    return nvrtc
