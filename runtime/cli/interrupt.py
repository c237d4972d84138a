"""Signals: Ctrl-C during a generation stops it after the current round; SIGTERM ends a command as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED, TERMINATED = 130, 143
"""The exit codes of a command that Ctrl-C or SIGTERM ended."""


class Terminated(BaseException):
    """The process was told to end: what it has begun to write is removed on the way out."""


def unwind_when_terminated() -> None:
    """Make the first SIGTERM raise `Terminated`; the second ends the process where it is."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, end)


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
