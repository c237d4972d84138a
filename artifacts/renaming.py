"""Atomic renames that POSIX `rename` does not offer: never replace, and exchange."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def move_new(source: Path, destination: Path) -> None:
    """Rename `source` to `destination`, which must not exist.

    Raises:
        OSError: the destination exists or the rename is not possible.
    """
    if _renameat2(source, destination, _NOREPLACE):
        return
    if os.path.lexists(destination):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(destination))
    os.rename(source, destination)


def replace(source: Path, destination: Path, aside: Path) -> Path:
    """Put the directory `source` in the place of the directory `destination` and return where the old one is now.

    Where the filesystem can exchange two names, `destination` exists at every moment. Elsewhere the old directory moves
    to `aside` first and moves back when the second step fails.

    Raises:
        OSError: the rename is not possible; the old directory is then where it was.
    """
    if _renameat2(source, destination, _EXCHANGE):
        return source
    os.rename(destination, aside)
    try:
        os.rename(source, destination)
    except BaseException:
        os.rename(aside, destination)
        raise
    return aside


def _renameat2(source: Path, destination: Path, flags: int) -> bool:
    """Return False when this system or filesystem does not know `flags`."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(destination), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(destination))
