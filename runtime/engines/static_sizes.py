"""Which of a stage's engines of static size a call takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from dfc.artifacts import Engine as EngineFile
from dfc.artifacts import Stage
from dfc.runtime.errors import RunError

Choice = TypeVar("Choice")


class StaticSizes:
    """The sizes that a stage's engines were built for."""

    def __init__(self, stage: Stage, files: Sequence[EngineFile]) -> None:
        self._stage = stage
        self._files = sorted(files, key=lambda file: (file.sizes["T"], file.sizes["context"]))

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows T of a call that there are engines for."""
        return tuple(sorted({file.sizes["T"] for file in self._files}))

    def fit(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of the engine with the fewest rows that has at least `sizes`.

        Raises:
            RunError: there is none.
        """
        for file in self._files:
            if all(file.sizes.get(name, 0) >= size for name, size in sizes.items()):
                return {name: file.sizes[name] for name in sizes}
        raise RunError(f"no engine of {self._folder} takes a call of {sizes}; build it again")

    def engines(self, shapes: Mapping[str, Sequence[int]]) -> list[EngineFile]:
        """Return the engines for tensors of these shapes, by the number of cache rows that they look at.

        Raises:
            RunError: there is none.
        """
        wanted = {
            dimension: size
            for tensor in (*self._stage.inputs, *self._stage.outputs)
            if tensor.name in shapes
            for dimension, size in zip(tensor.shape, shapes[tensor.name], strict=True)
            if isinstance(dimension, str)
        }
        found = [file for file in self._files if all(file.sizes[name] == size for name, size in wanted.items())]
        if not found:
            raise RunError(f"no engine of {self._folder} has the sizes {wanted}; build it again")
        return found

    @property
    def _folder(self) -> str:
        return self._files[0].path.rsplit("/", 1)[0]


def for_context(choices: Sequence[tuple[int, Choice]], end: int) -> Choice:
    """Return the first choice that looks at `end` cache rows, the last one where none does; ordered by those rows."""
    return next((choice for context, choice in choices if end <= context), choices[-1][1])
