"""Every file of an artifact that is carried elsewhere."""

import hashlib

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.manifest import MAX_MANIFEST_BYTES, File
from dfc.artifacts.paths import MANIFEST_NAME, SIGNATURE_NAME
from dfc.artifacts.reader import Artifact
from dfc.artifacts.signature import MAX_SIGNATURE_BYTES

UNLISTED = {MANIFEST_NAME: MAX_MANIFEST_BYTES, SIGNATURE_NAME: MAX_SIGNATURE_BYTES}
"""The most bytes of each file that the manifest cannot list: itself and its signature."""


def list_contents(artifact: Artifact) -> dict[str, File]:
    """Return `manifest.json`, its signature where there is one, and then the listed files, sorted.

    Raises:
        ArtifactError: the manifest or the signature cannot be read.
    """
    contents = {}
    for name, limit in UNLISTED.items():
        path = artifact.path(name)
        if name == MANIFEST_NAME or path.exists():
            text = read_bounded(path, limit)
            contents[name] = File(sha256=hashlib.sha256(text).hexdigest(), size=len(text))
    return contents | dict(sorted(artifact.manifest.files.items()))
