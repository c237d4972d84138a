"""Reading files of an artifact: never through a link, never more than a file may have."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from dfc.artifacts.errors import ArtifactError


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read; the caller closes it.

    Raises:
        ArtifactError: the file cannot be read, or is a link or no regular file.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for someone to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ArtifactError(f"{path} is a link; an artifact holds its files themselves") from None
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactError(f"{path} is not a regular file")
    return open(descriptor, "rb")


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Raises:
        ArtifactError: the file cannot be read, is a link or no regular file, or is longer than that.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ArtifactError(f"{path} has {size} bytes, more than the {limit} that it may have")
        try:
            return file.read(size)
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror}") from None
