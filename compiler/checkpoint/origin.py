"""Where a checkpoint comes from, as far as its place says it."""

from __future__ import annotations

import re
from pathlib import Path

from dfc.artifacts.manifest import Origin

_REPOSITORY = re.compile(r"models--([\w.-]+?)--([\w.-]+)")
_REVISION = re.compile(r"[0-9a-f]{40}")


def find_origin(directory: Path) -> Origin | None:
    """Return repository and revision of a checkpoint in a Hugging Face cache, None for one that lies anywhere else."""
    *_, repository, snapshots, revision = ("", "", "", *directory.resolve().parts)
    match = _REPOSITORY.fullmatch(repository)
    if match is None or snapshots != "snapshots" or not _REVISION.fullmatch(revision):
        return None
    return Origin(repository=f"{match[1]}/{match[2]}", revision=revision)
