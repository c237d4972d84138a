"""Sending an artifact to a registry."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import MAX_MANIFEST_BYTES, File
from dfc.artifacts.paths import MANIFEST_NAME, SIGNATURE_NAME
from dfc.artifacts.publishing import oci_manifest
from dfc.artifacts.reader import Artifact
from dfc.artifacts.signature import MAX_SIGNATURE_BYTES

if TYPE_CHECKING:
    from dfc.artifacts.publishing.registry import Repository


@dataclass(frozen=True)
class Pushed:
    """What a push did: the manifest's digest, and files and bytes that the registry did not have before."""

    digest: str
    files: int
    bytes: int


def push(artifact: Artifact, repository: "Repository", tag: str, progress: Progress | None = None) -> Pushed:
    """Send what the repository lacks, and the manifest last, so that the tag never means half an artifact.

    The contents must have been checked before: the registry compares them with their digests, but not what it has.

    Raises:
        ArtifactError: a file cannot be read.
        PublishingError: the registry cannot be reached or refuses.
    """
    files = {**artifact.manifest.files, **_unlisted(artifact)}
    contents = {f"sha256:{file.sha256}": (name, file.size) for name, file in files.items()}
    missing = {digest: entry for digest, entry in contents.items() if not repository.has_blob(digest)}
    total, done = sum(size for _, size in missing.values()), 0

    def sent(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    for digest, (name, size) in sorted(missing.items(), key=lambda item: item[1]):
        repository.put_blob(digest, size, artifact.path(name), sent)
    empty = oci_manifest.sha256(oci_manifest.EMPTY)
    if not repository.has_blob(empty):
        repository.put_blob(empty, len(oci_manifest.EMPTY), oci_manifest.EMPTY, sent)
    text = oci_manifest.write(files)
    repository.put_manifest(tag, text)
    return Pushed(oci_manifest.sha256(text), len(missing), total)


def _unlisted(artifact: Artifact) -> dict[str, File]:
    """Return the manifest and, where there is one, its signature, which the manifest itself cannot list."""
    files = {}
    for name, limit in ((MANIFEST_NAME, MAX_MANIFEST_BYTES), (SIGNATURE_NAME, MAX_SIGNATURE_BYTES)):
        path = artifact.path(name)
        if name == MANIFEST_NAME or path.exists():
            content = read_bounded(path, limit)
            files[name] = File(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    return files
