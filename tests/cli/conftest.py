"""Tests of the commands leave the user's cache alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dfc.artifacts import Artifact


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def copied(reference_artifact: Artifact, tmp_path: Path) -> Path:
    """The reference artifact as a copy, whose weights are not the checkpoint's own files."""
    root = tmp_path / "artifact"
    shutil.copytree(reference_artifact.root, root)
    for path in root.rglob("*"):
        # Long ago, so that what is found out about the files may be remembered.
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return root
