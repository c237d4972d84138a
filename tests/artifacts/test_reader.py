"""Opening finds missing and short files, verifying finds changed ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.artifacts import ArtifactError, open_artifact, verify
from tests.artifacts.samples import ENGINE, FILES, assert_one_sentence, write_artifact

WEIGHTS = "weights/target/model.safetensors"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "artifact")
    return tmp_path / "artifact"


def test_a_whole_artifact(root: Path) -> None:
    artifact = open_artifact(root)
    assert artifact.root == root
    assert artifact.manifest.files.keys() == FILES.keys()
    assert artifact.path(WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert verify(artifact) == []


def test_verify_reports_progress(root: Path) -> None:
    calls: list[tuple[int, int]] = []
    verify(open_artifact(root), lambda done, total: calls.append((done, total)))
    total = sum(map(len, FILES.values()))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (total, total)


def test_a_missing_file(root: Path) -> None:
    artifact = open_artifact(root)
    os.unlink(root / WEIGHTS)
    assert verify(artifact) == [WEIGHTS]
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root)
    assert_one_sentence(caught.value, str(root), WEIGHTS, "missing", "build the artifact again")


def test_a_directory_in_a_files_place(root: Path) -> None:
    artifact = open_artifact(root)
    os.unlink(root / WEIGHTS)
    (root / WEIGHTS).mkdir()
    assert verify(artifact) == [WEIGHTS]
    with pytest.raises(ArtifactError, match="missing"):
        open_artifact(root)


@pytest.mark.parametrize("size", [0, len(FILES[WEIGHTS]) - 1, len(FILES[WEIGHTS]) + 1])
def test_another_size(root: Path, size: int) -> None:
    artifact = open_artifact(root)
    os.truncate(root / WEIGHTS, size)
    assert verify(artifact) == [WEIGHTS]
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root)
    assert_one_sentence(caught.value, WEIGHTS, f"{size} bytes instead of {len(FILES[WEIGHTS])}")


@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(FILES)), unique=True), st.data())
def test_verify_names_exactly_the_files_with_a_changed_byte(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("changed") / "artifact"
    write_artifact(root)
    for name in names:
        content = bytearray((root / name).read_bytes())
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] ^= data.draw(st.integers(1, 255))
        (root / name).write_bytes(content)
    # Sizes are right, so opening, which reads no content, has nothing to say.
    assert verify(open_artifact(root)) == sorted(names)


def test_verify_names_all_that_is_wrong_sorted(root: Path) -> None:
    artifact = open_artifact(root)
    os.unlink(root / WEIGHTS)
    (root / ENGINE).write_bytes(b"other")
    assert verify(artifact) == [ENGINE, WEIGHTS]


def test_a_file_that_cannot_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = open_artifact(root)

    def refuse(paths: object, progress: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(root / WEIGHTS))

    monkeypatch.setattr("dfc.artifacts.verification.hash_files", refuse)
    with pytest.raises(ArtifactError) as caught:
        verify(artifact)
    assert_one_sentence(caught.value, str(root / WEIGHTS), "Permission denied")


def test_a_manifest_whose_files_lie_outside(root: Path) -> None:
    (root.parent / "outside").write_bytes(b"secret")
    document = json.loads((root / "manifest.json").read_text())
    document["files"]["../outside"] = {"sha256": "0" * 64, "size": 6}
    (root / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root)
    assert_one_sentence(caught.value, str(root / "manifest.json"), "../outside")


def test_what_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    refusals = {
        "nothing": "does not exist",
        "file": "is not a directory",
        "empty": "has no manifest.json",
        "x" * 300: "File name too long",
    }
    for name, reason in refusals.items():
        with pytest.raises(ArtifactError) as caught:
            open_artifact(tmp_path / name)
        assert_one_sentence(caught.value, str(tmp_path / name), reason)
