"""Stops of `dfc run`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc

OPTIONS = ("--max-new", 96, "--ignore-eos")


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_a_stop_string_ends_text_and_tokens(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], speculation: str
) -> None:
    case = reference_runs[0]
    options = (reference_artifact.root, "--prompt", case["prompt"], *OPTIONS, "--spec", speculation)
    whole = json.loads(dfc("run", *options, "--json").stdout)
    assert whole["stop_reason"] is None
    text = whole["text"]
    # From the middle of the text, and not of one token.
    stop = text[len(text) // 2 :][:9]
    finished = dfc("run", *options, "--json", "--stop", "never there", "--stop", stop)
    stopped = json.loads(finished.stdout)
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)
    assert stopped["text"] == text[: text.index(stop)]
    count = len(stopped["token_ids"])
    assert stopped["token_ids"] == whole["token_ids"][:count]
    streamed = dfc("run", *options, "--stop", stop)
    assert streamed.stdout.decode() == f"{stopped['text']}\n"
    assert f"{count} tokens (stop)" in streamed.stderr.decode()
    # Its tokens go as far as the one that completes the stop.
    for size, present in ((count, True), (count - 1, False)):
        shorter = json.loads(dfc("run", *options, "--json", "--max-new", size).stdout)["text"]
        assert (stop in shorter) == present


def test_a_stop_token_ends_and_has_no_text(reference_artifact: Artifact, reference_runs: list[dict[str, Any]]) -> None:
    case = reference_runs[0]
    options = (reference_artifact.root, "--prompt", case["prompt"], *OPTIONS, "--json")
    # The token that comes first the latest.
    token = max(set(case["greedy_ids"]), key=case["greedy_ids"].index)
    place = case["greedy_ids"].index(token)
    stopped = json.loads(dfc("run", *options, "--stop-token-id", 5, "--stop-token-id", token).stdout)
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", token)
    assert stopped["token_ids"] == case["greedy_ids"][: place + 1]
    assert stopped["text"] == json.loads(dfc("run", *options, "--max-new", place).stdout)["text"]


@pytest.mark.parametrize(
    "arguments, fragment",
    [
        (("--stop", ""), "--stop is empty"),
        (("--stop", "<|im_end|>"), "--stop-token-id 2"),
        (("--stop", b"\xff".decode(errors="surrogateescape")), "--stop is not UTF-8"),
        (("--stop-token-id", "4096"), "4096"),
        (("--stop-token-id", "-1"), "--stop-token-id"),
    ],
)
def test_bad_stops_get_one_sentence(reference_artifact: Artifact, arguments: tuple[str, ...], fragment: str) -> None:
    assert_fails(dfc("run", reference_artifact.root, "--prompt", "a", *arguments), 2, fragment)
