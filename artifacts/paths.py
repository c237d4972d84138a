"""Which file names may appear inside an artifact."""

from dfc.artifacts.errors import ArtifactError

MANIFEST_NAME = "manifest.json"

SIGNATURE_NAME = "manifest.json.sig"
"""The one file that may be there and is not listed: it signs the list."""

CONVERTED_NAME = "dfc-converted.safetensors"
"""Weights whose bytes a build had to change, in one file beside the checkpoint's own."""


def check_relative(path: str) -> str:
    """Return `path` when it stays inside the artifact on every machine.

    Raises:
        ArtifactError: the path is empty, absolute, climbs out, or is not written the one canonical way.
    """
    parts = path.split("/")
    if "\\" in path or not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise ArtifactError(f"{path!r} is not a plain relative path inside the artifact")
    return path


def printable(text: str) -> str:
    """Return a text for a message, which what someone put into an artifact must neither break nor fill."""
    shown = "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text[:300])
    return shown if len(text) <= 300 else f"{shown}..."
