"""Receiving an artifact from a tar file or another directory: checked, and in its place whole or not at all."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from dfc.artifacts.bounded import open_regular
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import File
from dfc.artifacts.partial import PartialDirectory
from dfc.artifacts.paths import MANIFEST_NAME, printable
from dfc.artifacts.publishing import oci_manifest, tar
from dfc.artifacts.publishing.contents import UNLISTED, list_contents
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.receiving import check_sound, load_manifest, only_receiver
from dfc.artifacts.reader import open_artifact
from dfc.artifacts.writer import adopt, check_replaceable

Entry = tuple[str, int, BinaryIO]
"""Name, size, and where exactly so many bytes are to be read."""

_BLOCK_BYTES = 1 << 20


def receive(
    source: Path,
    output: Path,
    *,
    digest: str | None = None,
    force: bool = False,
    waiting: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
) -> str:
    """Copy the artifact in `source`, a tar file of `pack` or an artifact directory, to `output` and return its digest.

    It is the digest of the OCI manifest that the artifact has in a registry; with `digest`, another one is refused.

    Raises:
        ArtifactError: the source cannot be read, or the output may not be replaced or cannot be written.
        PublishingError: what the source holds is refused.
    """
    output = Path(output).resolve()
    check_replaceable(output, force=force)
    with only_receiver(output, force=force, waiting=waiting):
        partial = PartialDirectory.create(output)
        try:
            entries = _from_directory(source) if source.is_dir() else _from_tar(source)
            found = _copy(entries, partial.path, str(source), digest)
            check_sound(partial.path, str(source), progress)
            adopt(partial.path, output, force=force)
        finally:
            partial.remove()
    return found


def _from_tar(source: Path) -> Iterator[Entry]:
    with open_regular(source) as file:
        for name, size in tar.entries(file, str(source)):
            yield name, size, file


def _from_directory(source: Path) -> Iterator[Entry]:
    artifact = open_artifact(source)
    for name, file in list_contents(artifact).items():
        with open_regular(artifact.path(name)) as content:
            yield name, file.size, content


def _copy(entries: Iterator[Entry], root: Path, source: str, pinned: str | None) -> str:
    """Write the entries below `root` and return the digest; they must be those of the manifest, in the one order."""
    unlisted: dict[str, File] = {}
    entry = next(entries, None)
    for name, limit in UNLISTED.items():
        if entry is not None and entry[0] == name:
            if entry[1] > limit:
                raise PublishingError(f"{source} is refused: {name} has {entry[1]} bytes, more than {limit}")
            unlisted[name] = _write(entry, root, source)
            entry = next(entries, None)
    if MANIFEST_NAME not in unlisted:
        raise PublishingError(f"{source} is refused: it does not begin with {MANIFEST_NAME}, as `dfc push` writes it")
    manifest = load_manifest(root, source)
    digest = oci_manifest.sha256(oci_manifest.write({**unlisted, **manifest.files}))
    # Before anything large is written.
    if pinned not in (None, digest):
        raise PublishingError(f"{source} is refused: its digest is {digest}")
    for name, file in sorted(manifest.files.items()):
        if entry is None:
            raise PublishingError(f"{source} is refused: {printable(name)} is missing")
        if entry[0] != name:
            raise PublishingError(f"{source} is refused: {printable(entry[0])} is where {printable(name)} must be")
        if entry[1] != file.size:
            raise PublishingError(f"{source} is refused: {printable(name)} has {entry[1]} bytes instead of {file.size}")
        if _write(entry, root, source) != file:
            raise PublishingError(f"{source} is refused: {printable(name)} is not what its digest says")
        entry = next(entries, None)
    if entry is not None:
        raise PublishingError(f"{source} is refused: {printable(entry[0])} is not listed in the manifest")
    return digest


def _write(entry: Entry, root: Path, source: str) -> File:
    name, size, content = entry
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed, left = hashlib.sha256(), size
    with path.open("xb") as target:
        while left:
            block = content.read(min(_BLOCK_BYTES, left))
            if not block:
                raise PublishingError(f"{source} is refused: it ends within {printable(name)}")
            hashed.update(block)
            target.write(block)
            left -= len(block)
    return File(sha256=hashed.hexdigest(), size=size)
