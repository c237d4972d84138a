"""`--spec-policy` from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dfc.artifacts import Artifact
from tests.cli.process import dfc


def test_a_run_switches_and_its_trace_says_why(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    case, trace = reference_runs[0], tmp_path / "trace.jsonl"
    middle = len(case["prompt_ids"]) + 20
    policy = f"mtp<{middle}<=dflash2<{middle + 20}<=none"
    options = ("--spec-policy", policy, "--max-new", 60, "--ignore-eos", "--json", "--trace", trace)
    finished = dfc("run", reference_artifact.root, "--prompt", case["prompt"], *options)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert report["token_ids"] == case["greedy_ids"][:60]
    assert [part["drafter"] for part in report["speculation"]["policy"]] == ["mtp", "dflash2", "none"]
    rounds = [json.loads(line) for line in trace.read_text().splitlines()]
    assert list(dict.fromkeys(entry["drafter"] for entry in rounds)) == ["mtp", "dflash2", "none"]
    assert all(entry["reason"] and entry["draft_tokens"] == len(entry["proposed"]) for entry in rounds)


def test_wrong_policies_are_one_sentence(reference_artifact: Artifact) -> None:
    root = reference_artifact.root
    wrong = dfc("run", root, "--prompt", "a", "--spec-policy", "mtp<9<=dflash3")
    assert wrong.returncode == 2
    assert b"'dflash3' is no drafter" in wrong.stderr
    both = dfc("run", root, "--prompt", "a", "--spec-policy", "mtp<9<=none", "--spec", "mtp")
    assert both.returncode == 2
    assert b"leave out --spec" in both.stderr
    missing = dfc("run", root, "--prompt", "a", "--spec-policy", "dflash<9<=none")
    assert missing.returncode == 1
    assert b"the artifact holds dflash2 and mtp" in missing.stderr
    assert b"Traceback" not in missing.stderr


def test_the_mtp_head_can_be_left_out(reference: Path, tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    built = dfc("build", reference / "target", "--draft", reference / "dflash2", "--no-mtp", "-o", artifact)
    assert built.returncode == 0, built.stderr
    manifest = json.loads((artifact / "manifest.json").read_text())
    assert set(manifest["components"]) == {"target", "dflash2"}
    assert not any(stage.startswith("draft_mtp") for stage in manifest["stages"])
    refused = dfc("run", artifact, "--prompt", "a", "--spec", "mtp")
    assert refused.returncode == 1
    assert b"the artifact holds dflash2" in refused.stderr
