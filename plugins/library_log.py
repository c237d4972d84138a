"""What an engine library says: kept line by line, and shown only where something fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_library import ILogger, Library


class LibraryLog:
    """The messages of a builder, a parser or a runtime, as the library's logger collects them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._errors: list[str] = []

    def logger(self, library: Library) -> ILogger:
        """Return a logger for `library` (a bindings module) that writes here."""
        error_level = library.ILogger.Severity.ERROR

        def log(logger: ILogger, severity: ILogger.Severity, message: str) -> None:
            self.lines.append(f"[{severity.name}] {message}")
            # Without a GPU the library complains about the driver, and goes on.
            if int(severity) <= int(error_level) and "cudaError 35" not in message:
                self._errors.append(message)

        made: ILogger = type("Logger", (library.ILogger,), {"log": log})()
        return made

    def clear(self) -> None:
        """Forget what was said so far."""
        self.lines.clear()
        self._errors.clear()

    @property
    def last_error(self) -> str:
        """The last error in one line, empty when there was none."""
        return " ".join(self._errors[-1].split()) if self._errors else ""
