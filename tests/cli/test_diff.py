"""`dfc diff`: a table or an object, and an exit code that says whether there is a difference."""

from __future__ import annotations

import json
from pathlib import Path

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc
from tests.paths import REFERENCE


def test_equal_artifacts(reference_artifact: Artifact, copied: Path) -> None:
    finished = dfc("diff", reference_artifact.root, copied)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert finished.stdout == b"the artifacts are equal\n"
    report = json.loads(dfc("diff", reference_artifact.root, copied, "--json").stdout)
    assert (report["equal"], report["changes"]) == (True, [])


def test_artifacts_that_differ(reference_artifact: Artifact, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert dfc("build", REFERENCE / "target", "--max-context", 64, "-o", other).returncode == 0
    finished = dfc("diff", reference_artifact.root, other, "--json")
    assert (finished.returncode, finished.stderr) == (1, b"")
    report = json.loads(finished.stdout)
    assert report["equal"] is False
    changes = {(change["section"], change["item"], change["field"]): change for change in report["changes"]}
    assert changes["model", "model", "max_context"]["b"] == 64
    assert changes["build", "options", "max_context"]["b"] == "64"
    assert changes["components", "dflash2", None]["b"] is None
    assert changes["stages", "draft_dflash2", None]["b"] is None
    removed = changes["files", "weights/dflash2/model.safetensors", None]
    assert removed["a"] == reference_artifact.manifest.files["weights/dflash2/model.safetensors"].model_dump()
    assert not [key for key in changes if key[1].startswith("weights/target/")], "the same weights went into both"
    table = dfc("diff", reference_artifact.root, other, environment={"COLUMNS": "240"})
    assert (table.returncode, table.stderr) == (1, b"")
    lines = table.stdout.decode().splitlines()
    assert [line for line in lines if "max_context" in line and " 64 " in line]
    assert [line for line in lines if "weights/dflash2/model.safetensors" in line and "removed" in line]
    assert lines[-1] == f"{len(changes)} differences"


def test_what_cannot_be_opened(reference_artifact: Artifact, tmp_path: Path) -> None:
    assert_fails(dfc("diff", reference_artifact.root, tmp_path), 1, "manifest.json")
    assert_fails(dfc("diff", reference_artifact.root), 2, "B")


def test_the_exit_codes_are_documented() -> None:
    text = " ".join(dfc("diff", "--help").stdout.decode().split())
    assert "0 when the artifacts are equal and 1 when they differ" in text
