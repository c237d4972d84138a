"""`dfc` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

DFC = Path(sys.executable).with_name("dfc")


def dfc(*arguments: object, stdin: bytes = b"", environment: dict[str, str] | None = None) -> Any:
    return subprocess.run(
        [DFC, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def assert_fails(finished: Any, code: int, *fragments: str) -> None:
    """One sentence on stderr, nothing on stdout."""
    message = finished.stderr.decode()
    assert finished.returncode == code, message
    assert finished.stdout == b""
    assert message.count("\n") == 1, message
    assert "Traceback" not in message
    for fragment in fragments:
        assert fragment in message
