"""What an engine is to the runtime: named tensors, and calls bound to buffers once and run many times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dfc.artifacts import Stage

Array = NDArray[Any]


class Buffer(Protocol):
    """Memory of one tensor, where the engine runs."""

    def write(self, values: Array) -> None:
        """Copy `values`, of the buffer's dtype and shape, into it."""

    def read(self) -> Array:
        """Return the content on the host, valid until the next call that writes the buffer."""


class Call(Protocol):
    """One launch of an engine on bound buffers."""

    def run(self) -> None:
        """Run to completion."""


class Engine(Protocol):
    """One loaded stage."""

    @property
    def stage(self) -> Stage:
        """The tensors of the stage."""

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        """Return a zeroed buffer."""

    def bind(self, buffers: Mapping[str, Buffer]) -> Call:
        """Bind all inputs and the outputs wanted, by name, for one set of shapes."""


def integers(values: object) -> Array:
    """Return int64 values as every stage takes them."""
    return np.asarray(values, dtype=np.int64)
