"""What the CUDA kernels of all custom operators have in common: their description and their launch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any, Generic, Protocol, Self, TypeVar

WARP = 32
ACCESS_BYTES = 16
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int32": 4, "int64": 8}
_ELEMENT_TYPES = {"float32": "float", "bfloat16": "Bfloat16", "int32": "int", "int64": "long long"}

POINTER = "u64"
INTEGER = "u32"


class GeometryError(ValueError):
    """A custom operator's kernel cannot serve a geometry; the message says which field and what is allowed."""


class Extent(Protocol):
    """A dimension known only at run time: an int, or TensorRT's symbolic expression."""

    def __add__(self, other: int, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __floordiv__(self, other: int, /) -> Self: ...


E = TypeVar("E", bound=Extent)


@dataclass(frozen=True)
class Launch(Generic[E]):
    """How to start a kernel: thread blocks (x), threads in each (x), and the integers between inputs and outputs."""

    grid: E
    threads: int
    extra_arguments: tuple[E, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel's source, what is fixed when it is compiled, and its parameter list: `u64` pointers, `u32` integers."""

    name: str
    package: str
    defines: tuple[tuple[str, str], ...]
    parameters: tuple[str, ...]

    @property
    def source(self) -> str:
        """The CUDA C++ text."""
        return (resources.files(self.package) / "kernel.cu").read_text()

    @property
    def headers(self) -> dict[str, str]:
        """The text of every file that the source includes, by name."""
        return {"numbers.cuh": (resources.files("dfc.plugins") / "numbers.cuh").read_text()}


def element_type(dtype: str) -> str:
    """Return the C++ type of an element; raise `GeometryError` for a dtype that kernels do not read."""
    if dtype not in _ELEMENT_TYPES:
        raise GeometryError(f"dtype {dtype} is not one of {', '.join(_ELEMENT_TYPES)}")
    return _ELEMENT_TYPES[dtype]


def access_width(count: int, element_bytes: int) -> int:
    """Return how many of `count` neighbouring elements one access moves: a power of two that divides `count`."""
    width = ACCESS_BYTES // element_bytes
    while count % width:
        width //= 2
    return width


def tiles(extent: E, size: int) -> E:
    """Return how many tiles of `size` cover the extent."""
    return (extent + (size - 1)) // size
