"""An artifact as one tar file, of which there is exactly one: nothing in it depends on who packed it, when or where."""

import contextlib
import os
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from dfc.artifacts.bounded import open_regular
from dfc.artifacts.errors import ArtifactError, reporting
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import File
from dfc.artifacts.paths import printable
from dfc.artifacts.publishing import oci_manifest
from dfc.artifacts.publishing.contents import list_contents
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.reader import Artifact

_BLOCK = tarfile.BLOCKSIZE
_MAX_RECORDS_BYTES: Final = 64 << 10
"""Most bytes of a long name or a large size, which stand before an entry."""


def pack(artifact: Artifact, file: Path, *, force: bool = False, progress: Progress | None = None) -> str:
    """Write the tar file, whole or not at all, and return the digest that its OCI manifest would have.

    The contents must have been checked before. The first entry is `manifest.json`, then comes its signature where
    there is one, then the listed files by name.

    Raises:
        ArtifactError: the file is there and `force` is not given, or something cannot be read or written.
    """
    check_writable(file, force=force)
    contents = list_contents(artifact)
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}.partial")
    try:
        with reporting(f"cannot write {file}"):
            with partial.open("xb") as target:
                _write(target, artifact, contents, progress)
                target.flush()
                os.fsync(target.fileno())
            check_writable(file, force=force)
            partial.replace(file)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return oci_manifest.sha256(oci_manifest.write(contents))


def _write(target: BinaryIO, artifact: Artifact, contents: dict[str, File], progress: Progress | None) -> None:
    total, done = sum(entry.size for entry in contents.values()), 0
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, entry in contents.items():
            information = tarfile.TarInfo(name)
            information.size = entry.size
            with open_regular(artifact.path(name)) as source:
                tar.addfile(information, source)
            done += entry.size
            if progress is not None:
                progress(done, total)


def check_writable(file: Path, *, force: bool) -> None:
    """Check that a tar file may be written to `file`; call it before any long work.

    Raises:
        ArtifactError: something is there and `force` is not given, or it is no regular file.
    """
    if not os.path.lexists(file):
        return
    if file.is_symlink() or not file.is_file():
        raise ArtifactError(f"{file} is not a regular file, so it is not replaced; remove it by hand")
    if not force:
        raise ArtifactError(f"{file} exists already; give --force to replace it")


def entries(file: BinaryIO, source: str) -> Iterator[tuple[str, int]]:
    """Yield name and size of each entry; the caller reads exactly its content from `file` before the next one.

    Regular files are the only entries that there may be, and no header can make this read much. Names are unchecked.

    Raises:
        PublishingError: it is no tar file, ends early, or holds anything else; `source` is its name there.
    """
    while True:
        block = file.read(_BLOCK)
        if block == bytes(_BLOCK):
            break
        information = _header(block, source)
        name, size = information.name, information.size
        if information.type == tarfile.XHDTYPE:
            records = _records(file, size, source)
            information = _header(file.read(_BLOCK), source)
            name, size = records.get("path", information.name), information.size
            if "size" in records:
                if not (records["size"].isascii() and records["size"].isdigit() and len(records["size"]) < 20):
                    raise _damaged(source, "a size in it is not a number")
                size = int(records["size"])
        if information.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise _damaged(source, f"{printable(name)} in it is not a regular file")
        if size < 0:
            raise _damaged(source, f"{printable(name)} in it has a negative size")
        yield name, size
        if any(_exactly(file, -size % _BLOCK, source)):
            raise _damaged(source, f"there is something between {printable(name)} and the next entry")
    while block := file.read(1 << 20):
        if any(block):
            raise _damaged(source, "there is something behind its end")


def _header(block: bytes, source: str) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError):
        raise _damaged(source, "it ends early or is no tar file") from None


def _records(file: BinaryIO, size: int, source: str) -> dict[str, str]:
    """Return the `path` and `size` of an extended header: `length key=value`, one a line."""
    if not 0 <= size <= _MAX_RECORDS_BYTES:
        raise _damaged(source, f"a header in it has {size} bytes, more than {_MAX_RECORDS_BYTES}")
    text = _exactly(file, size + -size % _BLOCK, source)[:size]
    records = {}
    while text:
        length, space, _ = text[:8].partition(b" ")
        end = int(length) if length.isdigit() else 0
        key, equals, value = text[len(length) + 1 : end - 1].partition(b"=")
        if not space or not equals or end > len(text) or text[end - 1 : end] != b"\n":
            raise _damaged(source, "an extended header in it cannot be read")
        if key not in (b"path", b"size"):
            raise _damaged(source, f"an extended header in it sets {printable(repr(key)[2:-1])}")
        try:
            records[key.decode()] = value.decode()
        except UnicodeDecodeError:
            raise _damaged(source, "a name in it is not UTF-8") from None
        text = text[end:]
    return records


def _exactly(file: BinaryIO, count: int, source: str) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise _damaged(source, "it ends early")
    return data


def _damaged(source: str, reason: str) -> PublishingError:
    return PublishingError(f"{source} is refused: {reason}")
