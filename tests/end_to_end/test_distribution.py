"""Every position's tokens have the distribution that transformers computes in float64, whatever drafts them.

Counts of a position are held against the sum, over the answers drawn, of transformers' distribution after each answer's
own tokens before: exact, and no set of all possible answers has to be gone through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.runtime.engine import Array
from dfc.runtime.sampling import Sampling
from tests.compiler.test_sampling import expected_distribution
from tests.end_to_end.forking import draw_answers
from tests.paths import REFERENCE
from tests.statistics import chi_square_p

DRAWS = 20_000
FEWER_DRAWS = 5_000
"""For what runs every time."""

POSITIONS = 4
PROMPT_TOKENS = 5
PROMPTS = (0, 5, 11)
"""Cases of the golden runs: code, prose and another."""

TEMPERATURES = (0.6, 1.0, 1.3)
FILTERS = ((0, 1.0), (20, 0.95))
"""`top_k` and `top_p`."""

SPECULATIONS = ("none", "mtp", "dflash2")


@dataclass(frozen=True)
class Case:
    speculation: str
    temperature: float
    top_k: int
    top_p: float
    prompt: int

    def __str__(self) -> str:
        return f"{self.speculation}-T{self.temperature}-k{self.top_k}-p{self.top_p}-prompt{self.prompt}"

    @property
    def sampling(self) -> Sampling:
        # Seeds that no other case has: a case's noise is its own.
        first_seed = CASES.index(self) * 1_000_000
        return Sampling(self.temperature, self.top_k, self.top_p, min_p=0.0, seed=first_seed)


CASES = tuple(
    Case(speculation, temperature, *filters, prompt)
    for speculation in SPECULATIONS
    for temperature, prompt in zip(TEMPERATURES, PROMPTS, strict=True)
    for filters in FILTERS
)
IN_EVERY_RUN = tuple(case for case in CASES if case.temperature == 1.3 and case.top_k)

LEAST_P = 1e-3 / (POSITIONS * len(CASES))
"""1e-3 for all of them together, after Bonferroni's correction."""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The reference model with caches of few rows: a place takes a new answer by copying them."""
    output = tmp_path_factory.mktemp("distribution") / "artifact"
    build_artifact(BuildRequest(REFERENCE / "target", (REFERENCE / "dflash2",), output, max_context=32))
    return open_artifact(output)


def p_values(artifact: Artifact, model: Any, prompt: list[int], case: Case, draws: int, **options: Any) -> list[float]:
    """Return for each position how likely counts are that lie as far from transformers' distribution."""
    answers = draw_answers(artifact, case.speculation, prompt, case.sampling, draws, POSITIONS, **options)
    return [
        chi_square_p(np.bincount(answers[:, position], minlength=len(expected)), expected)
        for position, expected in enumerate(expected_counts(model, prompt, answers, case.sampling))
    ]


def expected_counts(model: Any, prompt: list[int], answers: Array, sampling: Sampling) -> Iterator[Array]:
    """Yield for each position how often every token is expected, given the tokens before it in each answer."""
    for position in range(answers.shape[1]):
        prefixes, times = np.unique(answers[:, :position], axis=0, return_counts=True)
        expected: Any = 0.0
        for begin in range(0, len(prefixes), 1024):
            some = slice(begin, begin + 1024)
            ids = np.hstack([np.tile(prompt, (len(prefixes[some]), 1)), prefixes[some]]).astype(np.int64)
            with torch.inference_mode():
                logits = model(torch.from_numpy(ids), logits_to_keep=1, use_cache=False).logits[:, -1].numpy()
            settings = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
            expected = expected + times[some] @ expected_distribution(logits, *settings)
        yield expected


def prompt_of(case: Case, reference_runs: list[dict[str, Any]]) -> list[int]:
    ids: list[int] = reference_runs[case.prompt]["prompt_ids"]
    return ids[:PROMPT_TOKENS]


@pytest.mark.parametrize(
    "case, draws",
    [
        *(pytest.param(case, FEWER_DRAWS, marks=pytest.mark.slow) for case in IN_EVERY_RUN),
        *(pytest.param(case, DRAWS, marks=pytest.mark.exhaustive) for case in CASES),
    ],
    ids=str,
)
def test_positions_have_the_distribution_of_the_target(
    artifact: Artifact, reference_model: Any, reference_runs: list[dict[str, Any]], case: Case, draws: int
) -> None:
    found = p_values(artifact, reference_model, prompt_of(case, reference_runs), case, draws)
    print(case, *(f"{p:.4f}" for p in found))
    assert min(found) > LEAST_P, found


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in IN_EVERY_RUN if case.speculation != "none"], ids=str)
def test_a_q_of_scores_that_are_not_divided_by_the_temperature_is_found_out(
    artifact: Artifact, reference_model: Any, reference_runs: list[dict[str, Any]], case: Case
) -> None:
    falsify = partial(undivided, temperature=case.temperature)
    found = p_values(artifact, reference_model, prompt_of(case, reference_runs), case, FEWER_DRAWS, falsify=falsify)
    assert min(found) < LEAST_P, found


def undivided(q: Array, temperature: float) -> Array:
    """Return softmax(score) from softmax(score / temperature)."""
    powers: Array = q.astype(np.float64) ** temperature
    return powers / powers.sum(-1, keepdims=True)
