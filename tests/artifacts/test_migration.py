"""Manifests that earlier versions of dfc wrote are read as the present kind, and none of a later one is."""

from __future__ import annotations

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import SCHEMA_VERSION, Artifact, ArtifactError, Manifest, open_artifact, verify
from dfc.artifacts.migration import STEPS, migrate
from dfc.artifacts.verification import examine, manifest_problem
from tests.artifacts.fuzzing import mutate
from tests.artifacts.samples import assert_one_sentence, write_tensor_artifact
from tests.end_to_end.decoding import decode

STORED = Path(__file__).with_name("manifests")
"""One manifest of each earlier version, as that dfc wrote it for the reference model."""


@pytest.fixture
def version_1() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((STORED / "v1.json").read_text())
    return document


def test_there_is_a_stored_manifest_of_every_earlier_version() -> None:
    assert list(STEPS) == list(range(1, SCHEMA_VERSION))
    assert sorted(path.name for path in STORED.iterdir()) == [f"v{version}.json" for version in STEPS]
    for version in STEPS:
        assert json.loads((STORED / f"v{version}.json").read_text())["schema_version"] == version


def test_version_1_is_read_with_all_that_it_says(version_1: dict[str, Any]) -> None:
    manifest = Manifest.load(STORED / "v1.json")
    assert manifest.schema_version == SCHEMA_VERSION
    read = json.loads(manifest.to_json())
    for field in version_1.keys() - {"schema_version", "calibration"}:
        assert_contains(read[field], version_1[field], field)
    # The digest is that of the text as it was written.
    assert manifest.is_whole((STORED / "v1.json").read_bytes())


def assert_contains(found: Any, wanted: Any, place: str) -> None:
    """Check that a value of today is the old one, with fields that are new since at most."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert_contains(found[key], value, f"{place}/{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), place
        for index, value in enumerate(wanted):
            assert_contains(found[index], value, f"{place}/{index}")
    else:
        assert found == wanted, place


def test_version_2_is_read_with_all_that_it_says() -> None:
    text = (STORED / "v2.json").read_bytes()
    manifest = Manifest.load(STORED / "v2.json")
    written, read = json.loads(text), json.loads(manifest.to_json())
    assert {**written, "schema_version": SCHEMA_VERSION} == read
    assert manifest.is_whole(text)


@pytest.mark.parametrize("version", [1, 2])
def test_numbers_without_a_device_are_left_out(version: int, tmp_path: Path) -> None:
    document = json.loads((STORED / f"v{version}.json").read_text()) | {"calibration": {"threshold": 0.5}}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    assert Manifest.load(tmp_path / "manifest.json").calibration == {}


def test_a_migration_leaves_its_input_alone(version_1: dict[str, Any]) -> None:
    before = copy.deepcopy(version_1)
    assert migrate(version_1, 1)["schema_version"] == SCHEMA_VERSION
    assert version_1 == before


def as_version_1(root: Path) -> None:
    """Write an artifact's manifest again, as version 1 had it."""
    stored = json.loads((STORED / "v1.json").read_text())
    document = json.loads((root / "manifest.json").read_text())
    document = {name: document.get(name, stored[name]) for name in stored} | {"schema_version": 1, "calibration": {}}
    (root / "manifest.json").write_text(json.dumps(document))


def test_an_artifact_of_version_1_opens_and_runs(reference_artifact: Artifact, tmp_path: Path) -> None:
    root = tmp_path / "artifact"
    shutil.copytree(reference_artifact.root, root)
    as_version_1(root)
    artifact = open_artifact(root)
    assert verify(artifact) == []
    assert decode(artifact, [1, 2, 3], 8, "dflash2") == decode(reference_artifact, [1, 2, 3], 8, "dflash2")


def test_damage_to_a_manifest_of_version_1_is_found(tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    (root / "manifest.json").write_bytes((STORED / "v1.json").read_bytes())
    assert manifest_problem(root, Manifest.load(root / "manifest.json")) is None
    text = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(text.replace('"hidden_size": 256', '"hidden_size": 257'))
    assert text != (root / "manifest.json").read_text()
    problem = manifest_problem(root, Manifest.load(root / "manifest.json"))
    assert problem is not None
    assert "does not fit" in problem
    assert [finding.name for finding in examine(root) if finding.name == "manifest.json" and finding.problem]


@pytest.mark.parametrize("damage", [{"model": 1}, {"calibration": [1]}, {"stages": None}, {"files": "x"}])
def test_a_broken_manifest_of_version_1_is_refused(
    version_1: dict[str, Any], tmp_path: Path, damage: dict[str, Any]
) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**version_1, **damage}))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), f"field {next(iter(damage))}")


def test_an_unknown_field_may_come_from_a_newer_dfc(version_1: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**version_1, "later": 1}))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), "field later", "newer one")


def test_mutations_of_a_version_1_raise_artifact_errors_only(tmp_path: Path) -> None:
    sound = json.dumps(json.loads((STORED / "v1.json").read_text())).encode()
    path = tmp_path / "manifest.json"
    outcomes = {"taken": 0, "refused": 0}
    for seed in range(400):
        path.write_bytes(mutate(sound, random.Random(seed)))
        try:
            assert Manifest.load(path).schema_version == SCHEMA_VERSION
            outcomes["taken"] += 1
        except ArtifactError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5, outcomes
