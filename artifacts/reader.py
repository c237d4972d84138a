"""Opening an artifact."""

from dataclasses import dataclass
from pathlib import Path

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.paths import MANIFEST_NAME, check_relative, printable
from dfc.artifacts.structure import compare


@dataclass(frozen=True)
class Artifact:
    """An artifact directory that held the listed files at their sizes, and nothing else, when it was opened."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Return the location of a file or directory of the artifact.

        Raises:
            ArtifactError: the path leaves the artifact.
        """
        return self.root / check_relative(relative)


def open_artifact(path: Path) -> Artifact:
    """Open an artifact directory; no content but the manifest's is read (see `verification` and `tensors`).

    Raises:
        ArtifactError: not an artifact, built by a newer dfc, or a file is missing, of another size, a link or not
            listed.
    """
    root = Path(path)
    manifest = read_manifest(root)
    try:
        structure = compare(root, manifest)
    except OSError as error:
        raise ArtifactError(f"cannot read {root}: {error.strerror}") from error
    for difference in structure.differences():
        raise ArtifactError(
            f"{root} is damaged: {printable(difference.name)} {difference.problem}; build the artifact again"
        )
    return Artifact(root, manifest)


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of an artifact directory.

    Raises:
        ArtifactError: there is no artifact, or its manifest cannot be read.
    """
    try:
        if not root.is_dir():
            problem = "is not a directory" if root.exists() else "does not exist"
            raise ArtifactError(f"{root} {problem}, so it is not a dfc artifact")
        if not (root / MANIFEST_NAME).is_file():
            raise ArtifactError(f"{root} is not a dfc artifact: it has no {MANIFEST_NAME}")
    except OSError as error:
        raise ArtifactError(f"cannot read {root}: {error.strerror}") from error
    return Manifest.load(root / MANIFEST_NAME)
