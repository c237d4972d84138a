"""The caches and states of one stage: caches stay in place, states alternate between two buffers."""

from __future__ import annotations

from collections.abc import Mapping

from dfc.artifacts import Tensor
from dfc.runtime.engine import Array, Buffer, Engine
from dfc.runtime.errors import RunError


class States:
    """Buffers of a stage's caches and states for `batch` sequences, zeroed."""

    def __init__(self, engine: Engine, batch: int) -> None:
        self._caches: dict[str, Buffer] = {}
        self._states: dict[str, tuple[Buffer, Buffer]] = {}
        self._outputs = {tensor.alias: tensor.name for tensor in engine.stage.outputs if tensor.alias is not None}
        for tensor in engine.stage.inputs:
            shape = _concrete(tensor, batch)
            if tensor.role == "cache":
                self._caches[tensor.name] = engine.allocate(tensor.dtype, shape)
            elif tensor.role == "state":
                pair = (engine.allocate(tensor.dtype, shape), engine.allocate(tensor.dtype, shape))
                self._states[tensor.name] = pair
        self.current = 0
        rows = [tensor.shape[-2] for tensor in engine.stage.inputs if tensor.role == "cache"]
        self._capacity = min((size for size in rows if isinstance(size, int)), default=None)

    def check_room(self, length: int) -> None:
        """Check that the caches hold `length` rows: what is written past their end would be lost without a word.

        Raises:
            RunError: they do not.
        """
        # One row stays free: onnxruntime's attention wants a position more than it has rows.
        if self._capacity is not None and length >= self._capacity:
            raise RunError(
                f"a sequence of {length} tokens does not fit the engines, whose caches have {self._capacity} rows; keep"
                " to the model's max_context in the manifest, or build with a larger --max-context"
            )

    @property
    def alternatives(self) -> tuple[int, ...]:
        """The values `current` takes: calls are bound once for each."""
        return (0, 1) if self._states else (0,)

    def bindings(self, current: int) -> dict[str, Buffer]:
        """Return inputs and outputs by name for a call that starts from the states in buffer `current`."""
        bound: dict[str, Buffer] = {}
        for name, cache in self._caches.items():
            bound[name] = bound[self._outputs[name]] = cache
        for name, pair in self._states.items():
            bound[name] = pair[current]
            bound[self._outputs[name]] = pair[1 - current]
        return bound

    def swap(self) -> None:
        """Make what the last call wrote the states of the next; a second time, go back to before that call."""
        self.current = (self.current + 1) % len(self.alternatives)

    def reset(self) -> None:
        """Go back to the state before the first token. Caches stay: rows past a sequence's length are never read."""
        self.current = 0
        for pair in self._states.values():
            for buffer in pair:
                buffer.clear()

    def copy(self) -> Mapping[str, Array]:
        """Return the current states' values on the host, for `restore`."""
        return {name: pair[self.current].read().copy() for name, pair in self._states.items()}

    def restore(self, copied: Mapping[str, Array]) -> None:
        """Set the current states. Caches stay: the rows of the tokens before are still in them."""
        for name, pair in self._states.items():
            pair[self.current].write(copied[name])

    def copy_row(self, row: int, other: States) -> None:
        """Set a row of the current caches and states to those of another's only sequence."""
        others = other.snapshot()
        for name, buffer in self.snapshot().items():
            values = buffer.read()
            values[row] = others[name].read()[0]
            buffer.write(values)

    def snapshot(self) -> Mapping[str, Buffer]:
        """Return the current caches and states by input name."""
        return self._caches | {name: pair[self.current] for name, pair in self._states.items()}


def _concrete(tensor: Tensor, batch: int) -> tuple[int, ...]:
    return tuple(batch if isinstance(dimension, str) else dimension for dimension in tensor.shape)
