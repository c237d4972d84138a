"""What every way of receiving an artifact begins and ends with."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from dfc.artifacts.errors import ArtifactError, reporting
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.partial import sweep
from dfc.artifacts.paths import MANIFEST_NAME, printable
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.turns import only_build
from dfc.artifacts.verification import examine
from dfc.artifacts.writer import check_replaceable, make_parent


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
def only_receiver(output: Path, *, force: bool, waiting: Callable[[], None]) -> Iterator[None]:
    """Wait until no other process writes to `output`, and be the only one within; what a killed one left is removed.

    Raises:
        ArtifactError: the output may not be replaced or, within too, cannot be written.
    """
    make_parent(output)
    with only_build(output, waiting), reporting(f"cannot write {output}"):
        sweep(output)
        check_replaceable(output, force=force)
        yield
