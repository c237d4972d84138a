"""What every way of receiving an artifact ends with."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.paths import MANIFEST_NAME, printable
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.verification import examine


def check_sound(root: Path, source: str, progress: Progress | None = None) -> None:
    """Check all that was received, as `dfc verify` does; `source` is where it came from, in messages.

    Raises:
        PublishingError: something is not sound.
    """
    for finding in examine(root, progress):
        if finding.problem is not None:
            raise PublishingError(f"{source} is refused: {printable(finding.name)} {printable(finding.problem)}")


def load_manifest(root: Path, source: str) -> Manifest:
    """Read the manifest that was received.

    Raises:
        PublishingError: it is no manifest that this dfc reads.
    """
    path = root / MANIFEST_NAME
    try:
        return Manifest.load(path)
    except ArtifactError as error:
        # Where it lies for the moment says nothing to the user.
        raise PublishingError(f"{source} is refused: {str(error).replace(str(path), MANIFEST_NAME)}") from None


@contextlib.contextmanager
def reporting(output: Path) -> Iterator[None]:
    """Say of an `OSError` within that the output cannot be written."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"cannot write {output}: {error.strerror or error}") from error
