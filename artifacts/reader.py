"""Opening an artifact and checking that it is whole."""

from dataclasses import dataclass
from pathlib import Path

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress, hash_files
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.paths import MANIFEST_NAME, check_relative


@dataclass(frozen=True)
class Artifact:
    """An artifact directory whose listed files were all there, at their sizes, when it was opened."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Return the location of a file or directory of the artifact.

        Raises:
            ArtifactError: the path leaves the artifact.
        """
        return self.root / check_relative(relative)


def open_artifact(path: Path) -> Artifact:
    """Open an artifact directory; file contents are not read (see `verify`).

    Raises:
        ArtifactError: not an artifact, built by a newer dfc, or a file is missing or has another size.
    """
    root = Path(path)
    try:
        if not root.is_dir():
            problem = "is not a directory" if root.exists() else "does not exist"
            raise ArtifactError(f"{root} {problem}, so it is not a dfc artifact")
        if not (root / MANIFEST_NAME).is_file():
            raise ArtifactError(f"{root} is not a dfc artifact: it has no {MANIFEST_NAME}")
    except OSError as error:
        raise ArtifactError(f"cannot read {root}: {error.strerror}") from error
    manifest = Manifest.load(root / MANIFEST_NAME)
    for name, file in sorted(manifest.files.items()):
        size = _size(root / name)
        if size is None:
            raise ArtifactError(f"{root} is damaged: {name} is missing; build the artifact again")
        if size != file.size:
            raise ArtifactError(
                f"{root} is damaged: {name} has {size} bytes instead of {file.size}; build the artifact again"
            )
    return Artifact(root, manifest)


def verify(artifact: Artifact, progress: Progress | None = None) -> list[str]:
    """Recompute the digest of every file and return the names of those that differ or are gone, sorted.

    Raises:
        ArtifactError: a file is there but cannot be read.
    """
    listed = artifact.manifest.files
    present = [name for name in sorted(listed) if _size(artifact.root / name) == listed[name].size]
    try:
        digests = hash_files([artifact.root / name for name in present], progress)
    except OSError as error:
        raise ArtifactError(f"cannot read {error.filename}: {error.strerror}") from error
    sound = {name for name, digest in zip(present, digests, strict=True) if digest == listed[name].sha256}
    return sorted(listed.keys() - sound)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None
