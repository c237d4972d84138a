"""Ctrl-C during a generation: it stops after the current round, and what is there is kept."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


class Interrupt:
    """Notes the first Ctrl-C while the block runs; the second is a KeyboardInterrupt, as always."""

    def __init__(self) -> None:
        self._seen = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def seen(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self._seen

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            raise KeyboardInterrupt
        self._seen = True
