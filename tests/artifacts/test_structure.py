"""Opening refuses whatever is not a listed file: links, strangers, pipes, and a manifest without a bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dfc.artifacts import ArtifactError, open_artifact
from dfc.artifacts.manifest import MAX_MANIFEST_BYTES
from tests.artifacts.samples import ENGINE, assert_one_sentence, write_artifact

WEIGHTS = "weights/target/model.safetensors"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "artifact")
    return tmp_path / "artifact"


def assert_refused(root: Path, *parts: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root)
    assert_one_sentence(caught.value, str(root), *parts)


@pytest.mark.parametrize("name", [ENGINE, WEIGHTS, "tokenizer/tokenizer.json"])
def test_a_link_to_a_file_of_the_same_content(root: Path, name: str) -> None:
    (root / name).rename(root.parent / "outside")
    (root / name).symlink_to(root.parent / "outside")
    assert_refused(root, name, "is a link")


def test_a_link_to_a_directory(root: Path) -> None:
    (root / "weights").rename(root.parent / "outside")
    (root / "weights").symlink_to(root.parent / "outside")
    assert_refused(root, "weights", "is a link")


def test_a_manifest_that_is_a_link(root: Path) -> None:
    (root / "manifest.json").rename(root.parent / "outside")
    (root / "manifest.json").symlink_to(root.parent / "outside")
    assert_refused(root, "manifest.json", "is a link")


def test_a_link_to_the_whole_artifact_is_the_users_own(root: Path) -> None:
    (root.parent / "latest").symlink_to(root)
    assert open_artifact(root.parent / "latest").manifest == open_artifact(root).manifest


@pytest.mark.parametrize("name", ["extra", "weights/target/extra.safetensors", "new/folder/.hidden", "a\nb"])
def test_a_file_that_is_not_listed(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(b"")
    assert_refused(root, name.replace("\n", "\\n"), "not listed")


@pytest.mark.parametrize("name", ["pipe", ENGINE, "manifest.json"])
def test_a_pipe_does_not_make_it_wait(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    assert_refused(root, *(() if name == "manifest.json" else (name, "not a regular file")))


def test_an_oversized_manifest_is_not_read(root: Path) -> None:
    os.truncate(root / "manifest.json", 1 << 40)
    assert_refused(root, "manifest.json", str(1 << 40), str(MAX_MANIFEST_BYTES))
