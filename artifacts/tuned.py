"""Storing a calibration in an artifact: all of the artifact but its manifest stays as it is."""

from dfc.artifacts.calibration import Calibration
from dfc.artifacts.errors import ArtifactError, reporting
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.paths import MANIFEST_NAME, SIGNATURE_NAME
from dfc.artifacts.reader import Artifact, read_manifest
from dfc.artifacts.replacing import replace_file


def check_tunable(artifact: Artifact, device: str, *, force: bool) -> None:
    """Check that a calibration of a device may be stored; call it before any long work.

    Raises:
        ArtifactError: there is one, or the artifact is signed, and `force` is not given.
    """
    if force:
        return
    if device in artifact.manifest.calibration:
        raise ArtifactError(f"{artifact.root} has a calibration of {device} already; give --force to measure again")
    if (artifact.root / SIGNATURE_NAME).exists():
        raise ArtifactError(
            f"{artifact.root} is signed, and its signature would not fit any more; give --force to remove it, and sign"
            " the artifact again"
        )


def store_calibration(artifact: Artifact, device: str, calibration: Calibration) -> Manifest:
    """Put a device's calibration into the manifest, seal it anew and return it; a signature is removed.

    The old manifest is there until the new one is there whole.

    Raises:
        ArtifactError: the artifact was changed since it was opened, or cannot be written.
    """
    root, manifest = artifact.root, artifact.manifest
    if read_manifest(root) != manifest:
        raise ArtifactError(f"{root} was changed while it was measured, so nothing is stored; tune it again")
    stored = manifest.with_calibration({**manifest.calibration, device: calibration}).sealed()
    replace_file(root, MANIFEST_NAME, stored.to_json().encode())
    with reporting(f"cannot remove {root / SIGNATURE_NAME}"):
        (root / SIGNATURE_NAME).unlink(missing_ok=True)
    return stored
