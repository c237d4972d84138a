"""The trace of a run: one JSON line a round, at its place only when the run is done."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from dfc.runtime.decode import Round
from dfc.runtime.errors import RunError


class TraceFile:
    """Writes rounds to a hidden sibling of `path` and renames it when the block ends well; None writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._file = tempfile.NamedTemporaryFile(
                    "w", dir=self._path.parent, prefix=f".{self._path.name}.", delete=False, encoding="utf-8"
                )
            except OSError as error:
                raise RunError(f"cannot write --trace {self._path}: {error.strerror}") from error
        return self

    def write(self, finished: Round) -> None:
        """Add one round."""
        if self._file is not None:
            line: dict[str, object] = {
                "anchor": finished.anchor,
                "proposed": finished.proposed,
                "accepted": finished.accepted,
            }
            if finished.drafter:
                chosen = {"drafter": finished.drafter, "draft_tokens": len(finished.proposed)}
                line |= chosen | {"reason": finished.reason}
            self._file.write(json.dumps(line) + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is None or self._path is None:
            return
        self._file.close()
        if kind is not None:
            os.unlink(self._file.name)
            return
        # Temporary files are private; a trace is as readable as any file the user writes.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(self._file.name, 0o666 & ~mask)
        try:
            os.replace(self._file.name, self._path)
        except OSError as failure:
            os.unlink(self._file.name)
            raise RunError(f"cannot write --trace {self._path}: {failure.strerror}") from failure
