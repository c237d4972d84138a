"""Fetching an artifact from a registry: continued where it stopped, checked, and in its place whole or not at all."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import File
from dfc.artifacts.paths import MANIFEST_NAME, printable
from dfc.artifacts.publishing import oci_manifest
from dfc.artifacts.publishing.errors import ConnectionCutError, PublishingError
from dfc.artifacts.publishing.receiving import check_sound, load_manifest, only_receiver
from dfc.artifacts.publishing.reference import Reference
from dfc.artifacts.writer import adopt, check_replaceable

if TYPE_CHECKING:
    from dfc.artifacts.publishing.registry import Repository

_BLOCK_BYTES = 1 << 20
_DEFAULT_TAG = "latest"


def pull(
    reference: Reference,
    repository: "Repository",
    output: Path,
    *,
    force: bool = False,
    waiting: Callable[[], None] = lambda: None,
    progress: Progress | None = None,
) -> str:
    """Fetch the artifact into `output` and return the digest of its manifest in the registry.

    What a pull that was cut has fetched lies in a hidden directory beside `output`; the next pull of the same digest
    goes on with it, one of another digest removes it. What was fetched and is not sound is removed.

    Raises:
        ArtifactError: the output may not be replaced or cannot be written, or the artifact is not sound.
        PublishingError: the registry cannot be reached, or what it has is refused.
    """
    output = Path(output).resolve()
    check_replaceable(output, force=force)
    text = repository.manifest(reference.digest or reference.tag or _DEFAULT_TAG)
    digest = oci_manifest.sha256(text)
    if reference.digest not in (None, digest):
        raise PublishingError(f"{reference} is refused: the registry sent a manifest whose digest is {digest}")
    files = oci_manifest.read(text, str(reference))
    with only_receiver(output, force=force, waiting=waiting):
        partial = output.parent / f".{output.name}.{digest.removeprefix('sha256:')[:16]}.pull"
        _remove_others(partial, output)
        _make_own(partial)
        try:
            _fetch(reference, repository, files, partial, progress)
            check_sound(partial, str(reference))
            adopt(partial, output, force=force)
        except (ConnectionCutError, KeyboardInterrupt):
            raise
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return digest


def _fetch(
    reference: Reference, repository: "Repository", files: dict[str, File], root: Path, progress: Progress | None
) -> None:
    total, before = sum(file.size for file in files.values()), 0

    def fetch(name: str) -> None:
        nonlocal before
        start = before

        def count(position: int) -> None:
            if progress is not None:
                progress(start + position, total)

        _fetch_file(reference, repository, name, files[name], root, count)
        before += files[name].size

    # The artifact's own manifest says what there must be, before anything large is fetched.
    fetch(MANIFEST_NAME)
    oci_manifest.check_layers(files, load_manifest(root, str(reference)), str(reference))
    for name in sorted(files.keys() - {MANIFEST_NAME}):
        fetch(name)


def _fetch_file(
    reference: Reference, repository: "Repository", name: str, file: File, root: Path, count: Callable[[int], None]
) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "r+b") as target:
        hashed = _hash_start(target, file.size, count)
        while target.tell() < file.size:
            start = target.tell()
            begin, blocks = repository.blob(f"sha256:{file.sha256}", start)
            if begin != start:
                target.seek(0)
                hashed = hashlib.sha256()
            try:
                _append(target, blocks, hashed, file.size, count)
            except ConnectionCutError:
                # Whoever sends something each time is asked again.
                if target.tell() <= start:
                    raise
                continue
            if target.tell() < file.size:
                raise PublishingError(f"{reference} is refused: {printable(name)} ends after {target.tell()} bytes")
        target.truncate(file.size)
    if hashed.hexdigest() != file.sha256:
        raise PublishingError(
            f"{reference} is refused: {printable(name)} is not what its digest says, so the registry's content or "
            "what an earlier pull left was damaged; nothing is kept, so a new pull fetches everything again"
        )


def _hash_start(target: BinaryIO, size: int, count: Callable[[int], None]) -> "hashlib._Hash":
    """Hash what an earlier pull left, at most `size` bytes, and stand behind it."""
    hashed = hashlib.sha256()
    while block := target.read(min(_BLOCK_BYTES, size - target.tell())):
        hashed.update(block)
        count(target.tell())
    return hashed


def _append(
    target: BinaryIO, blocks: Iterator[bytes], hashed: "hashlib._Hash", size: int, count: Callable[[int], None]
) -> None:
    for block in blocks:
        if len(block) > size - target.tell():
            raise PublishingError(f"the registry sends more than the {size} bytes that the manifest lists")
        target.write(block)
        hashed.update(block)
        count(target.tell())


def _remove_others(partial: Path, output: Path) -> None:
    leftover = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{16}}\.pull")
    for entry in sorted(output.parent.iterdir()):
        if entry != partial and leftover.fullmatch(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def _make_own(partial: Path) -> None:
    """Make the directory, or check that the one there is this user's: another one could put links into it."""
    with contextlib.suppress(FileExistsError):
        partial.mkdir()
        return
    status = partial.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ArtifactError(f"{partial} is in the way; remove it")
