"""What an engine is to the runtime: named tensors, and calls bound to buffers once and run many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
        """Wait for calls that write the buffer and return its content on the host, valid until the next such call."""

    def clear(self) -> None:
        """Set every element to zero."""


@dataclass(frozen=True)
class Copy:
    """Elements of `source` that go to `target` from element `offset` on, just before a call runs."""

    source: Buffer
    target: Buffer
    offset: int = 0


class Call(Protocol):
    """One launch of an engine on bound buffers."""

    def run(self, end: int) -> None:
        """Launch; calls run in the order of their launches. `end` is the most cache rows in use after this one."""


class Engine(Protocol):
    """One loaded stage."""

    @property
    def stage(self) -> Stage:
        """The tensors of the stage."""

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        """The rows T of the calls to run once while loading: every size there is an engine for."""

    def fit(self, **sizes: int) -> dict[str, int]:
        """Return the sizes that a call must have to bring at least `sizes` (T rows, J judged, S slots).

        Rows behind those that count are padding: the stage's inputs say how many count.
        """

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        """Return a zeroed buffer where the engine runs: for what stays there."""

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        """Return a zeroed buffer that the host reads or writes for every call: for a few numbers."""

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        """Bind all inputs and the outputs wanted, by name, for one set of shapes."""


OpenStage = Callable[[str], Engine]
"""Loads a stage by name; engines that one such function loads may share buffers."""


def integers(values: object) -> Array:
    """Return int64 values as every stage takes them."""
    return np.asarray(values, dtype=np.int64)
