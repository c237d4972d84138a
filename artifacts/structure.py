"""What an artifact directory holds, against what its manifest lists: names, kinds and sizes, no contents."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dfc.artifacts.manifest import Manifest
from dfc.artifacts.paths import MANIFEST_NAME, SIGNATURE_NAME


@dataclass(frozen=True)
class Difference:
    """One name that is not as listed, and why, as words that follow the name in a sentence."""

    name: str
    problem: str


@dataclass(frozen=True)
class Structure:
    """Everything that is not as the manifest lists it, each sorted by name."""

    links: tuple[Difference, ...]
    missing: tuple[Difference, ...]
    sizes: tuple[Difference, ...]
    extra: tuple[Difference, ...]

    def differences(self) -> Iterator[Difference]:
        """Yield all of them, what matters most first."""
        for group in (self.links, self.missing, self.sizes, self.extra):
            yield from group


def compare(root: Path, manifest: Manifest) -> Structure:
    """Compare an artifact directory with its manifest, following no link.

    Raises:
        OSError: a directory cannot be read.
    """
    found = dict(_walk(root))
    regular = {name: status for name, status in found.items() if stat.S_ISREG(status.st_mode)}
    links = [Difference(name, f"is {_kind(found[name])}") for name in sorted(found.keys() - regular.keys())]
    listed = manifest.files
    missing = [Difference(name, "is missing") for name in sorted(listed.keys() - found.keys())]
    sizes = [
        Difference(name, f"has {regular[name].st_size} bytes instead of {listed[name].size}")
        for name in sorted(listed.keys() & regular.keys())
        if regular[name].st_size != listed[name].size
    ]
    extra = [
        Difference(name, "is not listed in the manifest")
        for name in sorted(regular.keys() - listed.keys() - {MANIFEST_NAME, SIGNATURE_NAME})
    ]
    return Structure(tuple(links), tuple(missing), tuple(sizes), tuple(extra))


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below `root` that is not a directory, by its relative name."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                else:
                    yield name, entry.stat(follow_symlinks=False)


def _kind(status: os.stat_result) -> str:
    return "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
