"""Builds of the same output take turns: two at once would do the same work for one place."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.partial import NO_LOCKS


@contextlib.contextmanager
def only_build(output: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file beside `output`, whose directory must exist; `waiting` is called before waiting for another.

    The lock dies with its process, so a file that a killed build left keeps nobody waiting. On a filesystem without
    locks there are no turns.

    Raises:
        ArtifactError: the lock file cannot be made.
    """
    output = Path(output).resolve()
    path = output.parent / f".{output.name}.lock"
    try:
        descriptor = _lock(path, waiting)
    except OSError as error:
        raise ArtifactError(f"cannot lock {path}: {error.strerror}") from error
    try:
        yield
    finally:
        # While it is held: after it, another build's lock could be at this name.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _lock(path: Path, waiting: Callable[[], None]) -> int:
    told = False
    while True:
        # For writing, because NFS takes exclusive locks on nothing else.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    waiting()
                told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The build before may have removed the file that this one waited for.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except OSError as error:
            if error.errno in NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
