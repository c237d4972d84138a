"""The sampling options of `dfc run`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.cli.sampling import SamplingRequest, describe, resolve_sampling
from dfc.runtime.generation_config import SamplingDefaults
from dfc.runtime.sampling import Sampling
from tests.cli.process import assert_fails, dfc
from tests.paths import REFERENCE

NOTHING = SamplingRequest(None, None, None, None, None, None, None, (), None, False)
VOCAB_SIZE = 100
QWEN = SamplingDefaults(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)


def request(**given: object) -> SamplingRequest:
    return SamplingRequest(**{**vars(NOTHING), **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given, defaults, expected",
    [
        ({}, SamplingDefaults(), None),
        ({}, QWEN, Sampling(0.6, 20, 0.95, 0.0, 1)),
        ({"greedy": True}, QWEN, None),
        ({"temperature": 0.0}, QWEN, None),
        ({"temperature": 1.2}, SamplingDefaults(), Sampling(1.2, 0, 1.0, 0.0, 1)),
        ({"top_p": 0.5}, QWEN, Sampling(0.6, 20, 0.5, 0.0, 1)),
        ({"top_k": 0}, QWEN, Sampling(0.6, 0, 0.95, 0.0, 1)),
        ({"min_p": 0.1}, SamplingDefaults(), Sampling(1.0, 0, 1.0, 0.1, 1)),
        ({"repetition_penalty": 1.2}, SamplingDefaults(), Sampling(0.0, 0, 1.0, 0.0, 0, repetition_penalty=1.2)),
        ({"greedy": True}, SamplingDefaults(repetition_penalty=1.1), Sampling(0.0, 0, 1.0, 0.0, 0, 1.1)),
        ({"greedy": True, "repetition_penalty": 1.0}, SamplingDefaults(repetition_penalty=1.1), None),
        ({"temperature": 1.0, "presence_penalty": 0.5}, QWEN, Sampling(1.0, 20, 0.95, 0.0, 1, 1.0, 0.0, 0.5)),
        ({"logit_bias": ((3, -5.0),)}, QWEN, Sampling(0.6, 20, 0.95, 0.0, 1, logit_bias=((3, -5.0),))),
        ({"logit_bias": ((3, 2.0),)}, SamplingDefaults(), Sampling(0.0, 0, 1.0, 0.0, 0, logit_bias=((3, 2.0),))),
        # The file advises how to sample, but does not say to do it.
        ({}, SamplingDefaults(temperature=0.6), None),
        ({"top_k": 5}, SamplingDefaults(temperature=0.6), Sampling(0.6, 5, 1.0, 0.0, 1)),
    ],
)
def test_options_win_over_the_models_defaults(
    given: dict[str, object], defaults: SamplingDefaults, expected: Sampling | None
) -> None:
    seed = {"seed": 1} if expected is not None and expected.temperature else {}
    assert resolve_sampling(request(**given, **seed), defaults, VOCAB_SIZE) == expected


def test_a_seed_is_chosen_and_told() -> None:
    first, second = (resolve_sampling(request(temperature=1.0), SamplingDefaults(), VOCAB_SIZE) for _ in range(2))
    assert first is not None
    assert first != second
    assert f"seed {first.seed}" in describe(first)


@pytest.mark.parametrize(
    "options, fragments",
    [
        (("--temperature", 0, "--top-p", 0.9), ("--temperature 0", "--top-p")),
        (("--greedy", "--top-k", 5), ("--greedy", "--top-k")),
        (("--greedy", "--temperature", 0.5), ("--greedy", "--temperature")),
        (("--seed", 5), ("--seed", "--temperature")),
        (("--temperature", -1), ("--temperature",)),
        (("--top-p", 0), ("--top-p",)),
        (("--min-p", 2), ("--min-p",)),
        (("--top-k", -1), ("--top-k",)),
        (("--repetition-penalty", 0), ("--repetition-penalty",)),
        (("--presence-penalty", 3), ("--presence-penalty",)),
        (("--logit-bias", "the"), ("--logit-bias", "'the'", "198=-5")),
        (("--logit-bias", "3=500"), ("--logit-bias", "'3=500'", "100")),
        (("--logit-bias", "3=nan"), ("--logit-bias", "'3=nan'")),
        (("--logit-bias", "3=1", "--logit-bias", "3=2"), ("--logit-bias", "token 3")),
        (("--logit-bias", "99999=1"), ("--logit-bias", "99999", "below")),
    ],
)
def test_contradictions_are_explained(
    reference_artifact: Artifact, options: tuple[object, ...], fragments: tuple[str, ...]
) -> None:
    assert_fails(dfc("run", reference_artifact.root, "--prompt", "a", *options), 2, *fragments)


def test_the_same_seed_gives_the_same_report(reference_artifact: Artifact) -> None:
    options = ("--prompt", "def f(", "--max-new", 24, "--temperature", 1.5, "--seed", 9, "--json", "--spec", "mtp")
    first, second = (json.loads(dfc("run", reference_artifact.root, *options).stdout) for _ in range(2))
    assert first["token_ids"] == second["token_ids"]
    assert first["sampling"] == {**vars(Sampling(1.5, 0, 1.0, 0.0, 9)), "logit_bias": []}


def checkpoint_with(folder: Path, generation_config: str) -> Path:
    shutil.copytree(REFERENCE / "target", folder / "target")
    (folder / "target" / "generation_config.json").write_text(generation_config)
    return folder / "target"


def test_the_checkpoints_defaults_are_used(tmp_path: Path) -> None:
    config = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "eos_token_id": 2}
    target = checkpoint_with(tmp_path, json.dumps(config))
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    report = json.loads(dfc("run", tmp_path / "artifact", "--prompt", "a", "--max-new", 4, "--json").stdout)
    assert {name: report["sampling"][name] for name in ("temperature", "top_k", "top_p")} == {
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
    }
    greedy = dfc("run", tmp_path / "artifact", "--prompt", "a", "--max-new", 4, "--json", "--greedy")
    assert json.loads(greedy.stdout)["sampling"] is None


def test_an_impossible_default_is_named(tmp_path: Path) -> None:
    target = checkpoint_with(tmp_path, json.dumps({"do_sample": True, "top_p": 3.0, "eos_token_id": 2}))
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    finished = dfc("run", tmp_path / "artifact", "--prompt", "a", "--max-new", 4)
    assert_fails(finished, 1, "generation_config.json", "top_p")
