"""Replacing one file of an artifact that is in its place already."""

import os
from pathlib import Path

from dfc.artifacts.errors import reporting


def replace_file(root: Path, name: str, data: bytes) -> None:
    """Write a file at the root of an artifact so that the old or the new one is there whole.

    It grows beside the artifact, in which no file may lie that is not listed.

    Raises:
        ArtifactError: it cannot be written.
    """
    root = Path(root).resolve()
    partial = root.with_name(f".{root.name}.{name}.partial")
    with reporting(f"cannot write {root / name}"):
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(root / name)
        except BaseException:
            if partial.is_file():
                partial.unlink()
            raise
