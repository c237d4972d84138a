"""What an engine library says: kept line by line, and shown only where something fails."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_library import ILogger, Library


KEPT_LINES = 5000


class LibraryLog:
    """The messages of a builder, a parser or a runtime, as the library's logger collects them.

    `lines` are the last ones; all go to the end of `file`, where one is given, as they come.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._errors: list[str] = []
        self._file = file
        self._writing = threading.Lock()

    def logger(self, library: Library) -> ILogger:
        """Return a logger for `library` (a bindings module) that writes here."""
        error_level = library.ILogger.Severity.ERROR

        def log(logger: ILogger, severity: ILogger.Severity, message: str) -> None:
            self.add(f"[{severity.name}] {message}")
            # Without a GPU the library complains about the driver, and goes on.
            if int(severity) <= int(error_level) and "cudaError 35" not in message:
                self._errors.append(message)

        made: ILogger = type("Logger", (library.ILogger,), {"log": log})()
        return made

    def add(self, line: str) -> None:
        """Take in a line."""
        self.lines.append(line)
        with self._writing:
            if self._file is None:
                return
            # The library calls this, and C++ may not get an exception: a full disk costs the log.
            # Opened for every line: what a killed process was told last is on the disk.
            with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def close(self) -> None:
        """Write nothing to the file any more."""
        with self._writing:
            self._file = None

    def clear(self) -> None:
        """Forget what was said so far."""
        self.lines.clear()
        self._errors.clear()

    @property
    def last_error(self) -> str:
        """The last error in one line, empty when there was none."""
        return " ".join(self._errors[-1].split()) if self._errors else ""
