"""Where things that can be made again are kept for this user, between runs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_directory(name: str) -> Path:
    """Return this user's folder for one kind of thing; it need not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dfc" / name


def write_cache(path: Path, content: bytes) -> bool:
    """Put a file in place whole and return whether it is there: a cache that cannot be written costs time only."""
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            partial = Path(file.name)
            file.write(content)
        partial.replace(path)
        partial = None
    except OSError:
        return False
    finally:
        # Also when a signal ends the process here.
        if partial is not None:
            with contextlib.suppress(OSError):
                partial.unlink()
    return True
