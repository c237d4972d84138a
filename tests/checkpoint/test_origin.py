"""A checkpoint in a Hugging Face cache says where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from dfc.artifacts.manifest import Origin
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.checkpoint.origin import find_origin
from tests.oracle.random_checkpoints import TargetGeometry, write_target

REVISION = "0123456789" * 4


def test_the_manifest_names_repository_and_revision(tmp_path: Path) -> None:
    (tmp_path / "models--Some-One--tiny-1.5" / "snapshots").mkdir(parents=True)
    directory = tmp_path / "models--Some-One--tiny-1.5" / "snapshots" / REVISION
    target = write_target(directory, TargetGeometry())
    manifest = build_artifact(BuildRequest(target, (), tmp_path / "artifact"))
    expected = Origin(repository="Some-One/tiny-1.5", revision=REVISION)
    assert {component.origin for component in manifest.components.values()} == {expected}


@pytest.mark.parametrize(
    "place",
    ["plain", f"snapshots/{REVISION}", f"models--a--b/other/{REVISION}", "models--a--b/snapshots/main", "models--a--b"],
)
def test_any_other_place_says_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(parents=True)
    assert find_origin(tmp_path / place) is None
