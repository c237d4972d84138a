"""`dfc run --prompts-file`: every line as if it were run alone, and each bad line refused by its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_every_line_gives_what_it_gives_alone(
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    tmp_path: Path,
    speculation: str,
    batch_size: int,
) -> None:
    sampled = {"temperature": 0.9, "top_k": 20, "seed": 7, "max_new": 12}
    lines = [
        {"prompt": reference_runs[0]["prompt"], "max_new": 20},
        {"prompt_ids": reference_runs[3]["prompt_ids"], "max_new": 9},
        {"prompt": reference_runs[1]["prompt"], **sampled},
        {"messages": [{"role": "user", "content": "Sort a list."}], "max_new": 8},
        {"prompt_ids": reference_runs[2]["prompt_ids"], "max_new": 20, "greedy": True},
        {"prompt": reference_runs[0]["prompt"], "max_new": 5, "logit_bias": {reference_runs[0]["greedy_ids"][0]: -50}},
    ]
    path = write_lines(tmp_path / "prompts.jsonl", lines)
    command = ("run", reference_artifact.root, "--spec", speculation, "--ignore-eos", "--prompts-file", path)
    many = dfc(*command, "--batch-size", batch_size)
    assert many.returncode == 0, many.stderr
    found = [json.loads(line) for line in many.stdout.splitlines()]
    assert [entry["index"] for entry in found] == [0, 1, 2, 3, 4, 5]
    assert found[0]["token_ids"] == reference_runs[0]["greedy_ids"][:20]
    assert found[1]["token_ids"] == reference_runs[3]["greedy_ids"][:9]
    assert found[4]["token_ids"] == reference_runs[2]["greedy_ids"][:20]
    assert found[5]["token_ids"][0] != reference_runs[0]["greedy_ids"][0]
    assert [entry["sampling"] is None for entry in found] == [True, True, False, True, True, False]
    options = ("--temperature", "0.9", "--top-k", "20", "--seed", "7", "--max-new", "12", "--json")
    prompt = ("--spec", speculation, "--ignore-eos", "--prompt", reference_runs[1]["prompt"])
    alone = json.loads(dfc("run", reference_artifact.root, *prompt, *options).stdout)
    assert {**found[2], "stats": None} == {"index": 2, **alone, "stats": None}


def test_lines_draw_differently_with_one_seed_for_all(reference_artifact: Artifact, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "prompts.jsonl", [{"prompt": "def"}] * 4)
    options = ("--temperature", "1.3", "--seed", "3", "--max-new", "12")

    def draw() -> list[list[int]]:
        finished = dfc("run", reference_artifact.root, *options, "--prompts-file", path)
        return [json.loads(line)["token_ids"] for line in finished.stdout.splitlines()]

    first, second = draw(), draw()
    assert first == second
    assert len({tuple(tokens) for tokens in first}) > 1


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2 is not valid JSON"),
        ("[]", "line 2 is not an object"),
        ('{"prompt": "a", "max_tokens": 3}', "line 2 has a field 'max_tokens'"),
        ('{"max_new": 3}', "line 2 has no prompt"),
        ('{"prompt": "a", "prompt_ids": [1]}', "line 2 has prompt and prompt_ids"),
        ('{"prompt": 3}', "line 2: prompt is not a text"),
        ('{"prompt": ""}', "line 2: the prompt is empty"),
        ('{"prompt_ids": [-1]}', "line 2: prompt_ids is not a list of token ids"),
        ('{"prompt_ids": [true]}', "line 2: prompt_ids is not a list of token ids"),
        ('{"prompt": "a", "max_new": 0}', "line 2: max_new is 0, it must be 1 or more"),
        ('{"prompt": "a", "top_p": 1.5}', "line 2: top_p is 1.5"),
        ('{"prompt": "a", "seed": 1.5}', "line 2: seed is not a whole number"),
        ('{"prompt": "a", "temperature": 0, "top_p": 0.5}', "line 2: --temperature 0 takes the likeliest"),
        ('{"prompt": "a", "stop": [""]}', "line 2: --stop is empty"),
        ('{"prompt": "a", "logit_bias": {"a": 1}}', "line 2: logit_bias 'a=1' is not a token id and a number"),
        ('{"prompt": "a", "logit_bias": [3]}', "line 2: logit_bias is not an object"),
        ('{"messages": []}', "line 2 has no messages"),
    ],
)
def test_a_bad_line_is_refused_before_anything_runs(
    reference_artifact: Artifact, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n' + line + "\n")
    finished = dfc("run", reference_artifact.root, "--prompts-file", path)
    assert_fails(finished, 1, f"{path}, {message}")


def test_files_that_cannot_be_read(reference_artifact: Artifact, tmp_path: Path) -> None:
    assert_fails(dfc("run", reference_artifact.root, "--prompts-file", tmp_path / "none"), 1, "cannot read")
    (tmp_path / "empty").write_text("\n")
    assert_fails(dfc("run", reference_artifact.root, "--prompts-file", tmp_path / "empty"), 1, "has no prompts")
    options = ("--prompts-file", tmp_path / "empty", "--prompt", "a")
    assert_fails(dfc("run", reference_artifact.root, *options), 2, "give one of")


def test_a_batch_needs_prompts(reference_artifact: Artifact) -> None:
    finished = dfc("run", reference_artifact.root, "--prompt", "a", "--batch-size", 2)
    assert_fails(finished, 2, "--batch-size needs --prompts-file")
