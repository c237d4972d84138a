"""Which files were found sound before, so that a run need not read them all again.

It is kept for one user outside the artifact, and holds for a file that has the same size, time of change and inode: it
shows a damaged disk or a replaced file, not someone who sets a file's time back.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.errors import ArtifactError

_MAX_BYTES = 16 << 20
_SETTLED_NANOSECONDS = 2_000_000_000


@dataclass(frozen=True)
class Stamp:
    """What a file looks like from outside; it is another one when the file was written to or replaced."""

    size: int
    mtime_ns: int
    inode: int

    def is_settled(self) -> bool:
        """Return whether a later change must show: within a clock tick of the last one it need not."""
        return self.mtime_ns < time.time_ns() - _SETTLED_NANOSECONDS


@dataclass(frozen=True)
class Sound:
    """A file that had this digest when it looked like this."""

    sha256: str
    stamp: Stamp


_CONTENT = TypeAdapter(dict[str, Sound])


def stamps(root: Path, names: Iterable[str]) -> dict[str, Stamp]:
    """Return the stamp of every name that is a regular file."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            status = (root / name).lstat()
            if stat.S_ISREG(status.st_mode):
                found[name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def recall(folder: Path, root: Path) -> dict[str, Sound]:
    """Return what is remembered of an artifact's files; nothing when it cannot be read."""
    try:
        return _CONTENT.validate_json(read_bounded(_file(folder, root), _MAX_BYTES), strict=True)
    except (ArtifactError, ValidationError):
        return {}


def remember(folder: Path, root: Path, files: Mapping[str, Sound]) -> None:
    """Replace what is remembered of an artifact; a folder that cannot be written costs another check, nothing else."""
    file = _file(folder, root)
    partial = file.with_suffix(f".{secrets.token_hex(4)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(_CONTENT.dump_json(dict(files)))
        os.replace(partial, file)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def _file(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]}.json"
