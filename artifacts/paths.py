"""Which file names may appear inside an artifact."""

from dfc.artifacts.errors import ArtifactError

MANIFEST_NAME = "manifest.json"


def check_relative(path: str) -> str:
    """Return `path` when it stays inside the artifact on every machine.

    Raises:
        ArtifactError: the path is empty, absolute, climbs out, or is not written the one canonical way.
    """
    parts = path.split("/")
    if "\\" in path or not path.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise ArtifactError(f"{path!r} is not a plain relative path inside the artifact")
    return path


def printable(name: str) -> str:
    """Return a name for a message, which a file that someone put into an artifact must not break."""
    return name if name.isprintable() else ascii(name)
