"""A calibration is stored whole or not at all, and touches nothing but the manifest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dfc.artifacts import Artifact, ArtifactError, open_artifact
from dfc.artifacts.tuned import check_tunable, store_calibration
from dfc.artifacts.verification import examine
from tests.artifacts.samples import (
    DEVICE,
    assert_one_sentence,
    content,
    sample_calibration,
    sample_manifest,
    with_mtp,
    write_artifact,
)


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    write_artifact(tmp_path / "artifact", manifest=with_mtp(sample_manifest()))
    return open_artifact(tmp_path / "artifact")


def manifest_findings(root: Path) -> list[str | None]:
    return [finding.problem for finding in examine(root) if finding.name.startswith("manifest")]


def test_a_stored_calibration_is_read_back_and_the_manifest_fits_its_digest(artifact: Artifact) -> None:
    before = content(artifact.root)
    store_calibration(artifact, DEVICE, sample_calibration())
    after = open_artifact(artifact.root)
    assert after.manifest.calibration == {DEVICE: sample_calibration()}
    assert after.manifest.with_calibration({}).sealed() == artifact.manifest
    assert manifest_findings(artifact.root) == [None]
    names = {name for name, data in content(artifact.root).items() if data != before.get(name)}
    assert names == {"manifest.json"}
    assert os.listdir(artifact.root.parent) == ["artifact"]


def test_devices_stand_side_by_side_and_one_is_replaced(artifact: Artifact) -> None:
    store_calibration(artifact, DEVICE, sample_calibration())
    store_calibration(open_artifact(artifact.root), "other", sample_calibration(0.25))
    store_calibration(open_artifact(artifact.root), DEVICE, sample_calibration(0.125))
    stored = open_artifact(artifact.root).manifest.calibration
    assert stored == {DEVICE: sample_calibration(0.125), "other": sample_calibration(0.25)}


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_in_the_middle_leaves_the_artifact_as_it_was(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, call: str, failure: BaseException
) -> None:
    before = content(artifact.root)

    def fail(*arguments: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(os if call == "fsync" else Path, call, fail)
        with pytest.raises((ArtifactError, KeyboardInterrupt)) as caught:
            store_calibration(artifact, DEVICE, sample_calibration())
    if isinstance(caught.value, ArtifactError):
        assert_one_sentence(caught.value, "manifest.json", "No space left")
    assert content(artifact.root) == before
    assert os.listdir(artifact.root.parent) == ["artifact"]


def test_what_a_killed_process_left_beside_it_is_in_nobodys_way(artifact: Artifact) -> None:
    (artifact.root.parent / ".artifact.manifest.json.partial").write_bytes(b"half")
    store_calibration(open_artifact(artifact.root), DEVICE, sample_calibration())
    assert os.listdir(artifact.root.parent) == ["artifact"]


def test_an_artifact_that_changed_meanwhile_is_left_alone(artifact: Artifact) -> None:
    store_calibration(artifact, "other", sample_calibration())
    before = content(artifact.root)
    with pytest.raises(ArtifactError) as caught:
        store_calibration(artifact, DEVICE, sample_calibration())
    assert_one_sentence(caught.value, str(artifact.root), "tune it again")
    assert content(artifact.root) == before


def test_what_there_is_is_replaced_only_when_asked(artifact: Artifact) -> None:
    check_tunable(artifact, DEVICE, force=False)
    store_calibration(artifact, DEVICE, sample_calibration())
    stored = open_artifact(artifact.root)
    check_tunable(stored, "other", force=False)
    check_tunable(stored, DEVICE, force=True)
    with pytest.raises(ArtifactError) as caught:
        check_tunable(stored, DEVICE, force=False)
    assert_one_sentence(caught.value, DEVICE, "--force")


def test_a_signature_that_fits_no_more_is_removed_when_asked(artifact: Artifact) -> None:
    signature = artifact.path("manifest.json.sig")
    signature.write_bytes(b"signed\n")
    with pytest.raises(ArtifactError) as caught:
        check_tunable(artifact, DEVICE, force=False)
    assert_one_sentence(caught.value, "is signed", "--force")
    check_tunable(artifact, DEVICE, force=True)
    store_calibration(artifact, DEVICE, sample_calibration())
    assert not signature.exists()
