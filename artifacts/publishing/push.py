"""Sending an artifact to a registry."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dfc.artifacts.hashing import Progress
from dfc.artifacts.publishing import oci_manifest
from dfc.artifacts.publishing.contents import list_contents
from dfc.artifacts.reader import Artifact

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
    files = list_contents(artifact)
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
