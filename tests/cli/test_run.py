"""`dfc` as a process: results on stdout, one sentence on stderr, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash, write_dflash2, write_target
from tests.paths import REFERENCE


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2", "auto"])
def test_json_reports_everything(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], tmp_path: Path, speculation: str
) -> None:
    case = reference_runs[0]
    trace = tmp_path / "trace.jsonl"
    options = ("--spec", speculation, "--max-new", 96, "--ignore-eos", "--json", "--trace", trace)
    finished = dfc("run", reference_artifact.root, "--prompt", case["prompt"], *options)
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert list(report) == ["text", "token_ids", "finish_reason", "stop_reason", "speculation", "sampling", "stats"]
    assert report["token_ids"] == case["greedy_ids"]
    assert report["finish_reason"] == "length"
    assert report["speculation"]["backend"] == ("dflash2" if speculation == "auto" else speculation)
    assert report["speculation"]["reason"]
    stats, rounds = report["stats"], [json.loads(line) for line in trace.read_text().splitlines()]
    assert stats["rounds"] == len(rounds)
    assert stats["accepted_tokens"] == sum(entry["accepted"] for entry in rounds)
    assert stats["drafted_tokens"] == sum(len(entry["proposed"]) for entry in rounds)
    assert stats["tokens_per_round"] == pytest.approx(1 + stats["accepted_tokens"] / stats["rounds"])
    assert sum(stats["accepted_per_position"]) == stats["accepted_tokens"]
    assert stats["prefill_seconds"] > 0
    assert stats["tokens_per_second"] == pytest.approx(95 / stats["decode_seconds"])
    golden = {"mtp": "mtp3_rounds", "dflash2": "dflash2_rounds", "auto": "dflash2_rounds"}.get(speculation)
    if golden is not None:
        assert rounds == case[golden]


def test_the_four_ways_to_give_a_prompt_agree(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], tmp_path: Path
) -> None:
    case = reference_runs[1]
    file = tmp_path / "prompt.txt"
    file.write_bytes(case["prompt"].encode())
    ids = ",".join(map(str, case["prompt_ids"]))
    root, options = reference_artifact.root, ("--max-new", 12)
    outputs = {
        dfc("run", root, "--prompt", case["prompt"], *options).stdout,
        dfc("run", root, "--prompt-file", file, *options).stdout,
        dfc("run", root, "--prompt-ids", ids, *options).stdout,
        dfc("run", root, *options, stdin=case["prompt"].encode()).stdout,
    }
    assert len(outputs) == 1
    text = json.loads(dfc("run", root, "--prompt-ids", ids, *options, "--json").stdout)["text"]
    assert outputs == {f"{text}\n".encode()}


def test_statistics_and_text_stay_apart(reference_artifact: Artifact) -> None:
    finished = dfc("run", reference_artifact.root, "--prompt", "def f(x):", "--max-new", 8)
    assert b"tokens/s" in finished.stderr
    assert b"tokens/s" not in finished.stdout


def test_end_of_sequence_stops(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", TargetGeometry())
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    options = ("--prompt-ids", "5,6", "--json", "--max-new", 3)
    second = json.loads(dfc("run", tmp_path / "artifact", *options).stdout)["token_ids"][1]
    (target / "generation_config.json").write_text(json.dumps({"eos_token_id": [second]}))
    assert dfc("build", target, "-o", tmp_path / "artifact", "--force").returncode == 0
    stopped = json.loads(dfc("run", tmp_path / "artifact", *options).stdout)
    assert (stopped["finish_reason"], stopped["stop_reason"], stopped["token_ids"][-1]) == ("stop", second, second)
    assert len(stopped["token_ids"]) <= 2
    ignored = json.loads(dfc("run", tmp_path / "artifact", *options, "--ignore-eos").stdout)
    assert (ignored["finish_reason"], len(ignored["token_ids"])) == ("length", 3)


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_the_context_ends_a_generation_in_the_middle_of_a_block(tmp_path: Path, speculation: str) -> None:
    geometry = TargetGeometry()
    target = write_target(tmp_path / "target", geometry)
    draft = write_dflash2(tmp_path / "draft", geometry, DraftGeometry())
    artifact = tmp_path / "artifact"
    assert dfc("build", target, "--draft", draft, "-o", artifact, "--max-context", 20).returncode == 0
    options = ("--prompt-ids", "5,6,7", "--ignore-eos", "--json", "--spec", speculation)
    report = json.loads(dfc("run", artifact, *options).stdout)
    assert (report["finish_reason"], len(report["token_ids"])) == ("context", 17)
    too_long = ",".join(["9"] * 20)
    assert_fails(dfc("run", artifact, "--prompt-ids", too_long, "--spec", speculation), 1, "20 tokens", "--max-context")


def test_inspect_shows_what_auto_chooses(reference_artifact: Artifact) -> None:
    described = json.loads(dfc("inspect", reference_artifact.root, "--json").stdout)
    assert described["speculation"]["backend"] == "dflash2"
    assert set(described["components"]) == {"target", "mtp", "dflash2"}
    text = dfc("inspect", reference_artifact.root).stdout.decode()
    assert "dflash2" in text
    assert "auto" in text


@pytest.mark.parametrize(
    "arguments, code, fragment",
    [
        (("run", "{artifact}", "--spec", "eagle"), 2, "--spec"),
        (("run", "{artifact}", "--prompt", "a", "--prompt-ids", "1"), 2, "--prompt-ids"),
        (("run", "{artifact}", "--prompt-ids", "1,x"), 2, "'x'"),
        (("run", "{artifact}", "--prompt-ids", "4096"), 2, "4096"),
        (("run", "{artifact}", "--prompt", ""), 2, "--prompt"),
        (("run", "{artifact}", "--max-new", "0", "--prompt", "a"), 2, "--max-new"),
        (("run", "{artifact}", "--prompt", "a", "--spec", "mtp", "--draft-tokens", "99"), 1, "--draft-tokens 99"),
        (("run", "{artifact}", "--prompt", "a", "--spec", "none", "--draft-tokens", "2"), 1, "--draft-tokens"),
        (("run", "{artifact}", "--prompt-file", "{empty}/none"), 1, "none"),
        (("run", "{artifact}", "--prompt", "a", "--trace", "{empty}/none/trace"), 1, "--trace"),
        (("run", "{empty}", "--prompt", "a"), 1, "manifest.json"),
        (("run", "{empty}/missing", "--prompt", "a"), 2, "missing"),
        (("inspect", "{empty}"), 1, "manifest.json"),
        (("build", "{empty}", "-o", "{empty}/out"), 1, "config.json"),
        (("build", "{target}"), 2, "--output"),
        (("build", "{target}", "-o", "{empty}"), 1, "--force"),
        (("build", "{target}", "-o", "{empty}/out", "--dtype", "float16"), 1, "--dtype float16"),
        (
            ("build", "{target}", "-o", "{empty}/out", "--max-context", "9000"),
            1,
            "more than the 8192 positions",
        ),
        (("build", "{target}", "--draft", "{target}", "-o", "{empty}/out"), 1, "architectures"),
        (("build", "{target}", "--draft", "{draft}", "--draft", "{draft}", "-o", "{empty}/out"), 1, "second"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
def test_bad_input_gets_one_sentence(
    reference_artifact: Artifact, tmp_path: Path, arguments: tuple[str, ...], code: int, fragment: str
) -> None:
    places = {
        "artifact": reference_artifact.root,
        "empty": tmp_path,
        "target": REFERENCE / "target",
        "draft": REFERENCE / "dflash2",
    }
    assert_fails(dfc(*(argument.format(**places) for argument in arguments)), code, fragment)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    finished = dfc("run", tmp_path, "--prompt", "a", "--debug")
    assert finished.returncode == 1
    assert b"Traceback" in finished.stderr


def test_a_drafter_the_artifact_lacks_is_named(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", TargetGeometry())
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    assert_fails(dfc("run", tmp_path / "artifact", "--spec", "dflash2", "--prompt", "a"), 1, "dflash2", "mtp")


def test_two_drafters_are_built_and_chosen_by_name(tmp_path: Path) -> None:
    geometry = TargetGeometry()
    target = write_target(tmp_path / "target", geometry)
    first = write_dflash(tmp_path / "first", geometry, DraftGeometry(target_layer_ids=(2,), block_size=5))
    second = write_dflash2(tmp_path / "second", geometry, DraftGeometry(target_layer_ids=(0, 1)))
    artifact = tmp_path / "artifact"
    built = dfc("build", target, "--draft", first, "--draft", second, "-o", artifact)
    assert built.returncode == 0, built.stderr
    prompt = ("--prompt-ids", "5,77,130", "--max-new", 12, "--ignore-eos", "--temperature", 0, "--json")
    reports = {
        name: json.loads(dfc("run", artifact, "--spec", name, *prompt).stdout)
        for name in ("none", "auto", "dflash2", "dflash", "mtp")
    }
    assert len({tuple(report["token_ids"]) for report in reports.values()}) == 1
    chosen = {name: report["speculation"]["backend"] for name, report in reports.items()}
    assert chosen == {"none": "none", "auto": "dflash2", "dflash2": "dflash2", "dflash": "dflash", "mtp": "mtp"}
    drafted = {name: report["speculation"]["draft_tokens"] for name, report in reports.items()}
    assert drafted == {"none": 0, "auto": 7, "dflash2": 7, "dflash": 4, "mtp": 3}
    again = dfc("build", target, "--draft", first, "--draft", first, "-o", tmp_path / "again")
    assert_fails(again, 1, str(first), "second dflash drafter")


def test_builds_repeat_byte_for_byte_and_copy_no_weights(tmp_path: Path) -> None:
    geometry = TargetGeometry()
    target = write_target(tmp_path / "target", geometry)
    draft = write_dflash2(tmp_path / "draft", geometry, DraftGeometry())
    for seed, name in (("1", "first"), ("2", "second")):
        environment = {"PYTHONHASHSEED": seed}
        finished = dfc("build", target, "--draft", draft, "-o", tmp_path / name, environment=environment)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout == b""
    first, second = (
        {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}
        for root in (tmp_path / "first", tmp_path / "second")
    )
    assert first == second
    shard = target / "model-00001-of-00002.safetensors"
    assert shard.samefile(tmp_path / "first" / "weights" / "target" / shard.name)
    assert str(tmp_path) not in first["manifest.json"].decode()


def test_help_reads_as_a_manual() -> None:
    for command in ((), ("build",), ("run",), ("inspect",), ("verify",), ("diff",)):
        finished = dfc(*command, "--help")
        assert finished.returncode == 0
        assert finished.stdout
