"""What TensorRT says while it builds: kept, and shown only when a build fails."""

from __future__ import annotations

from typing import Any


class BuildLog:
    """The messages of one build, as the library's logger collects them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._errors: list[str] = []

    def logger(self, library: Any) -> Any:
        """Return a logger for `library` (a bindings module) that writes here."""
        log = self
        error_level = library.ILogger.Severity.ERROR

        class Logger(library.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                library.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                log.lines.append(f"[{severity.name}] {message}")
                # Without a GPU the library complains about the driver, and goes on.
                if int(severity) <= int(error_level) and "cudaError 35" not in message:
                    log._errors.append(message)

        return Logger()

    @property
    def last_error(self) -> str:
        """The last error in one line, empty when there was none."""
        return " ".join(self._errors[-1].split()) if self._errors else ""
