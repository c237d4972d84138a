"""Bringing a large file into the artifact without writing its bytes where the filesystem allows."""

import errno
import os
from pathlib import Path

_CHUNK_BYTES = 64 << 20


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` a hard link to `source`, or a copy of it when that is not possible.

    Raises:
        OSError: the source cannot be read or the destination cannot be written.
    """
    real = source.resolve(strict=True)
    try:
        os.link(real, destination)
    except FileExistsError:
        raise
    except OSError:
        # Another filesystem, one without links, or a file of another user: each has its own errno.
        copy_sparse(real, destination)


def copy_sparse(source: Path, destination: Path) -> None:
    """Copy `source` to the new file `destination`, leaving holes as holes.

    Raises:
        OSError: the source cannot be read, or the destination exists or cannot be written.
    """
    with source.open("rb", buffering=0) as reader, destination.open("xb", buffering=0) as writer:
        size = os.fstat(reader.fileno()).st_size
        position = 0
        while position < size:
            start, end = _next_extent(reader.fileno(), position, size)
            _copy_range(reader.fileno(), writer.fileno(), start, end)
            position = end
        os.ftruncate(writer.fileno(), size)


def _next_extent(descriptor: int, position: int, size: int) -> tuple[int, int]:
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        return min(start, size), min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:
            # No data behind `position`: the rest is one hole.
            return size, size
        return position, size


def _copy_range(source: int, destination: int, start: int, end: int) -> None:
    in_kernel = hasattr(os, "copy_file_range")
    while start < end:
        count = min(_CHUNK_BYTES, end - start)
        if in_kernel:
            try:
                copied = os.copy_file_range(source, destination, count, start, start)
            except OSError:
                copied = 0
            if copied:
                start += copied
                continue
            # Some pairs of filesystems refuse, some return 0: the bytes then go through this process.
            in_kernel = False
        data = os.pread(source, min(count, 1 << 20), start)
        if not data:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += os.pwrite(destination, data, start)
