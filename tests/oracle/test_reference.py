"""The oracle against values that independent public implementations computed for the reference checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.oracle.dflash2 import DFlash2
from tests.oracle.speculate import mean_tokens_per_round, run
from tests.oracle.target import Target
from tests.paths import GOLDEN, REFERENCE

RUNS: dict[str, Any] = json.loads((GOLDEN / "reference_runs.json").read_text())
FIRST_CASES = 3


@pytest.fixture(scope="module")
def target() -> Target:
    torch.set_num_threads(1)
    return Target(REFERENCE / "target")


@pytest.fixture(scope="module")
def dflash2(target: Target) -> DFlash2:
    return DFlash2(REFERENCE / "dflash2", target)


def test_forward(target: Target) -> None:
    golden = load_file(GOLDEN / "reference_forward.safetensors")
    forward = target.forward(golden["input_ids"].tolist())
    computed = {
        "logits": forward.logits,
        "final_hidden": forward.final_hidden,
        "dflash2_features": forward.features((1, 3, 5)),
    }
    for name, value in computed.items():
        error = (value - golden[name]).abs().max() / golden[name].abs().max()
        assert error < 1e-5, name


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(index), marks=[pytest.mark.slow] if index >= FIRST_CASES else [])
        for index, case in enumerate(RUNS["cases"])
    ],
)
def test_runs(target: Target, dflash2: DFlash2, case: dict[str, Any]) -> None:
    result = run(target, case["prompt_ids"], RUNS["new_tokens"], dflash2=dflash2, mtp_drafts=3)
    assert result.greedy_ids == case["greedy_ids"]
    assert result.min_top2_margin == pytest.approx(case["min_top2_margin"], abs=2e-5)
    assert result.rounds["dflash2"] == case["dflash2_rounds"]
    assert result.rounds["mtp"] == case["mtp3_rounds"]


@pytest.mark.parametrize(("drafter", "rounds"), [("dflash2", "dflash2_rounds"), ("mtp3", "mtp3_rounds")])
def test_mean_tokens_per_round_is_averaged_over_the_cases(drafter: str, rounds: str) -> None:
    means = [mean_tokens_per_round(case[rounds]) for case in RUNS["cases"]]
    assert sum(means) / len(means) == pytest.approx(RUNS["mean_tokens_per_round"][drafter])
