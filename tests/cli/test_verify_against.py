"""`dfc verify --against` finds an artifact that computes something else than its source."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import File, Manifest
from dfc.artifacts.hashing import hash_files
from dfc.compiler.quantising import Quantisation
from dfc.runtime.cli.main import cli
from tests.cli.process import assert_fails, dfc
from tests.end_to_end.decoding import build

PROMPT = "def area(width, height):\n"


def report(
    root: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, Any]:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text(PROMPT)
    arguments = [
        "verify",
        str(root),
        "--against",
        str(reference / "target"),
        "--prompts",
        str(prompts),
        "--json",
        *options,
    ]
    code = cli.main(arguments, standalone_mode=False)
    return int(code), json.loads(capsys.readouterr().out)


def test_what_was_built_passes_every_check(
    copied: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, compared = report(copied, reference, tmp_path, capsys)
    judged = {check["name"]: check["passed"] for check in compared["checks"]}
    assert code == 0, compared["checks"]
    assert compared["sound"] is True
    for drafter in ("dflash2", "mtp"):
        assert judged[f"{drafter}: tokens as without it"] is True
        assert judged[f"{drafter}: states as without it, relative"] is True
    assert judged["greedy tokens"] is True


def test_one_changed_weight_with_fitting_digests_fails(
    copied: Path, reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _change_one_weight(copied, "model.language_model.norm.weight")
    _refit(copied)
    code, compared = report(copied, reference, tmp_path, capsys)
    assert not [file for file in compared["files"] if file["problem"] is not None]
    assert code == 1
    assert compared["sound"] is False
    logits = compared["checks"][0]
    assert logits["name"].startswith("logits")
    assert logits["passed"] is False


def test_what_rounding_changes_is_measured_and_not_judged(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "artifact"
    build(root, reference / "target", draft_tokens=1, quantisation=Quantisation("int4"))
    code, compared = report(root, reference, tmp_path, capsys)
    judged = {check["name"]: check["passed"] for check in compared["checks"]}
    assert code == 0, compared["checks"]
    assert judged["logits: largest difference over largest logit"] is None
    assert judged["greedy tokens"] is None
    assert judged["mtp: tokens as without it"] is True
    code, _ = report(root, reference, tmp_path, capsys, "--tolerance", "0.001")
    assert code == 1


def test_prompts_without_a_checkpoint_are_refused(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text(PROMPT)
    assert_fails(dfc("verify", copied, "--prompts", tmp_path / "prompts.txt"), 2, "--against")


def test_a_checkpoint_that_transformers_cannot_load_is_named(copied: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_fails(dfc("verify", copied, "--against", tmp_path / "empty"), 1, "transformers cannot load", "empty")


def test_a_prompts_file_without_prompts_is_named(copied: Path, reference: Path, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("\n\n")
    failed = dfc("verify", copied, "--against", reference / "target", "--prompts", tmp_path / "none.txt")
    assert_fails(failed, 1, "none.txt", "holds no prompt")


def _change_one_weight(root: Path, ending: str) -> None:
    """Add to the first element of the tensor whose name ends so."""
    for path in sorted((root / "weights/target").glob("*.safetensors")):
        data = bytearray(path.read_bytes())
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        for name, entry in header.items():
            if name.endswith(ending) or name == "model.norm.weight":
                begin = 8 + size + entry["data_offsets"][0]
                # 4.0 as bfloat16, or as the upper half of a float32.
                begin += 0 if entry["dtype"] == "BF16" else 2
                data[begin : begin + 2] = b"\x80\x40"
                path.write_bytes(data)
                return
    raise AssertionError(f"no tensor ends in {ending}")


def _refit(root: Path) -> None:
    manifest = Manifest.load(root / "manifest.json")
    names = sorted(manifest.files)
    digests = hash_files([root / name for name in names])
    files = {
        name: File(size=(root / name).stat().st_size, sha256=digest)
        for name, digest in zip(names, digests, strict=True)
    }
    (root / "manifest.json").write_text(manifest.with_files(files).sealed().to_json())
