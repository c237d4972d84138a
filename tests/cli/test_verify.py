"""`dfc verify` finds any damage to an artifact."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dfc.runtime.cli.main import cli
from tests.artifacts.samples import write_artifact, write_tensor_artifact
from tests.cli.damage import flip_bit
from tests.cli.process import assert_fails, dfc


def verify(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report of `dfc verify --json`, run in this process."""
    code = cli.main(["verify", str(root), "--json"], standalone_mode=False)
    return int(code), json.loads(capsys.readouterr().out)


def problems(report: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["problem"] for entry in report["files"] if entry["problem"] is not None}


def test_a_sound_artifact(copied: Path) -> None:
    finished = dfc("verify", copied)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == b""
    assert b"no problems" in finished.stdout
    report = json.loads(dfc("verify", copied, "--json").stdout)
    assert report["sound"] is True
    listed = json.loads((copied / "manifest.json").read_text())["files"]
    assert {entry["name"] for entry in report["files"]} == {"manifest.json", *listed}
    assert {entry["name"]: entry["size"] for entry in report["files"] if entry["name"] in listed} == {
        name: file["size"] for name, file in listed.items()
    }


def test_a_flipped_bit_of_any_file_is_found(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [path.relative_to(copied).as_posix() for path in sorted(copied.rglob("*")) if path.is_file()]
    assert len(names) > 15
    for name in names:
        assert (copied / name).stat().st_nlink == 1, "the checkpoint itself would be damaged"
        for seed in range(12 if name == "manifest.json" else 2):
            sound = flip_bit(copied / name, f"{name} {seed}")
            code, report = verify(copied, capsys)
            (copied / name).write_bytes(sound)
            assert code == 1, (name, seed)
            assert report["sound"] is False
            assert list(problems(report)) == [name], (name, seed)
    assert verify(copied, capsys)[0] == 0


def test_everything_that_is_wrong_is_in_the_table(copied: Path) -> None:
    (copied / "weights" / "target" / "model-mtp.safetensors").unlink()
    (copied / "extra[red]").write_bytes(b"x")
    flip_bit(copied / "tokenizer" / "tokenizer.json", 1)
    (copied / "tokenizer" / "chat_template.jinja").rename(copied.parent / "elsewhere")
    (copied / "tokenizer" / "chat_template.jinja").symlink_to(copied.parent / "elsewhere")
    finished = dfc("verify", copied, environment={"COLUMNS": "200"})
    assert finished.returncode == 1
    assert finished.stderr == b""
    lines = finished.stdout.decode().splitlines()
    for name, words in {
        "model-mtp.safetensors": "is missing",
        "extra[red]": "is not listed",
        "tokenizer.json": "SHA-256 differs",
        "chat_template.jinja": "is a link",
    }.items():
        assert [line for line in lines if name in line and words in line], (name, lines)
    assert lines[-1].endswith("4 problems")


def test_a_cut_file_an_unlisted_file_and_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_artifact(tmp_path / "artifact")
    root = tmp_path / "artifact"
    os.truncate(root / "weights/target/model.safetensors", 10)
    (root / "link").symlink_to("/etc")
    (root / "weights" / "more").write_bytes(b"")
    code, report = verify(root, capsys)
    assert code == 1
    found = problems(report)
    assert found.keys() >= {"link", "weights/more", "weights/target/model.safetensors"}
    assert "10 bytes instead of" in found["weights/target/model.safetensors"]


def test_a_header_that_was_built_damaged_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Its digest is right, so only a look into it shows that it is no safetensors file.
    write_artifact(tmp_path / "artifact")
    code, report = verify(tmp_path / "artifact", capsys)
    assert code == 1
    assert "header" in problems(report)["weights/target/model.safetensors"]
    assert verify(write_tensor_artifact(tmp_path / "sound"), capsys)[0] == 0


def test_an_artifact_of_an_earlier_dfc_has_no_digest_of_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    document = json.loads((root / "manifest.json").read_text())
    del document["content_sha256"]
    (root / "manifest.json").write_text(json.dumps(document))
    code, report = verify(root, capsys)
    assert code == 1
    assert "no digest of itself" in problems(report)["manifest.json"]


def test_what_is_no_artifact(tmp_path: Path) -> None:
    assert_fails(dfc("verify", tmp_path), 1, "manifest.json")
    assert_fails(dfc("verify", tmp_path / "nothing"), 2, "nothing")
