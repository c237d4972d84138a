"""The hidden directory that an artifact grows in, beside its final place."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

# NFS takes exclusive locks on files open for writing only, which a directory never is: EBADF.
NO_LOCKS = (errno.ENOLCK, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)


@dataclass(frozen=True)
class PartialDirectory:
    """A locked directory `.NAME.XXXXXXXX.partial`; the lock dies with the process, so leftovers can be told apart."""

    path: Path
    lock: int

    @classmethod
    def create(cls, output: Path) -> "PartialDirectory":
        """Make and lock a new partial directory beside `output`.

        Raises:
            OSError: the parent directory cannot be written.
        """
        while True:
            path = output.parent / f".{output.name}.{secrets.token_hex(4)}.partial"
            # Not tempfile.mkdtemp: the artifact's permissions follow the umask.
            os.mkdir(path)
            # Without locks on this filesystem nothing is swept there, so the build is safe unlocked.
            lock = _open_locked(path, needs_lock=False)
            if lock is not None:
                return cls(path, lock)

    @property
    def aside(self) -> Path:
        """Where the replaced artifact waits on filesystems that cannot exchange two names."""
        return self.path.with_suffix(".previous")

    def unlock(self) -> None:
        """Release the lock."""
        os.close(self.lock)

    def remove(self) -> None:
        """Delete the directory, as far as possible, and release the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.unlock()


def sweep(output: Path) -> None:
    """Remove what killed builds of `output` left beside it, and put back an artifact they had moved aside.

    On a filesystem without locks a leftover looks like a build that runs, so it stays.
    """
    leftover = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{8}}\.(partial|previous)")
    for entry in sorted(output.parent.iterdir()):
        match = leftover.fullmatch(entry.name)
        if match is None:
            continue
        if match[1] == "previous" and not os.path.lexists(output):
            with contextlib.suppress(OSError):
                os.rename(entry, output)
            continue
        lock = _open_locked(entry, needs_lock=True)
        if lock is not None:
            shutil.rmtree(entry, ignore_errors=True)
            os.close(lock)


def _open_locked(path: Path, *, needs_lock: bool) -> int | None:
    """Return a locked descriptor of `path`, or None when another process has it or has removed it.

    Where the filesystem has no locks, the descriptor is unlocked, or None when `needs_lock`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another build's sweep may have removed the directory before it was locked.
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except OSError as error:
        if error.errno in NO_LOCKS and not needs_lock:
            return descriptor
    os.close(descriptor)
    return None
