"""Names inside an artifact never lead out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dfc.artifacts import Artifact, ArtifactError
from dfc.artifacts.paths import check_relative
from tests.artifacts.samples import assert_one_sentence, sample_manifest

REFUSED = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a/..",
    "a//b",
    "a/",
    "./a",
    "a/./b",
    "a\\b",
    "a\nb",
    "\0",
]


@pytest.mark.parametrize("path", REFUSED)
def test_refused(path: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        check_relative(path)
    assert_one_sentence(caught.value, repr(path), "relative path inside the artifact")


@pytest.mark.parametrize(
    "path", ["a", "weights/target/model-00001-of-00002.safetensors", "..a/b..", ".hidden", "ä/日本"]
)
def test_taken(path: str) -> None:
    assert check_relative(path) == path


@given(st.text(st.sampled_from("./\\ab \0\n"), max_size=12) | st.text(max_size=20))
@example("a/../../b")
def test_what_is_taken_stays_inside(path: str) -> None:
    try:
        check_relative(path)
    except ArtifactError:
        return
    root = "/some/root"
    assert os.path.normpath(os.path.join(root, path)) == f"{root}/{path}"


def test_an_artifact_refuses_to_look_outside(tmp_path: Path) -> None:
    artifact = Artifact(tmp_path, sample_manifest())
    assert artifact.path("weights/target") == tmp_path / "weights" / "target"
    for path in REFUSED:
        with pytest.raises(ArtifactError):
            artifact.path(path)
