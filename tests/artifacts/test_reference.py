"""A real build keeps the rules: nothing of the machine in it, weights linked, the same bytes again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dfc.artifacts import Artifact, verify
from tests.artifacts.samples import content
from tests.end_to_end.decoding import build

# One process builds the reference for all three.
pytestmark = pytest.mark.xdist_group("reference_artifact")


def test_the_same_bytes_from_another_place_in_another_one(
    reference_artifact: Artifact, reference: Path, tmp_path: Path
) -> None:
    for name in ("target", "dflash2"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        for file in (reference / name).iterdir():
            (tmp_path / "elsewhere" / name / file.name).write_bytes(file.read_bytes())
    again = build(tmp_path / "again", tmp_path / "elsewhere" / "target", tmp_path / "elsewhere" / "dflash2")
    first, second = content(reference_artifact.root), content(again.root)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def test_no_file_names_the_place_it_was_built_from_or_in(reference_artifact: Artifact, reference: Path) -> None:
    places = [os.fsencode(path) for path in (reference, reference_artifact.root)]
    for name, data in content(reference_artifact.root).items():
        if not name.startswith(("weights/", "tokenizer/")):
            assert not [place for place in places if place in data], name


def test_weights_are_the_checkpoints_own_files(reference_artifact: Artifact, reference: Path) -> None:
    weights = [name for name in reference_artifact.manifest.files if name.startswith("weights/")]
    assert weights
    for name in weights:
        source, linked = reference / name.removeprefix("weights/"), reference_artifact.path(name)
        if source.stat().st_dev == linked.stat().st_dev:
            assert source.samefile(linked), name
        else:
            assert source.read_bytes() == linked.read_bytes(), name
    assert verify(reference_artifact) == []
