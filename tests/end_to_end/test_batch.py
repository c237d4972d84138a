"""Rows of a batch equal the same prompts run alone, token by token, whatever their neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.batch import Batch
from dfc.runtime.load import load_batch
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.sampling import LIKELIEST, Sampling
from tests.end_to_end.decoding import new_tokens, open_decoder

COUNTS = (30, 7, 18, 25, 11, 30, 3, 22, 14, 9, 27, 16)
"""Tokens of each answer: places are free at different times."""


def run(batch: Batch, size: int, prompts: list[list[int]], samplings: list[Sampling | None]) -> list[list[int]]:
    """Decode all prompts; the next takes the place of one that has its tokens."""
    waiting = list(range(len(prompts)))
    busy: dict[int, int] = {}
    tokens: list[list[int]] = [[] for _ in prompts]
    while waiting or busy:
        for place in range(size):
            if place not in busy and waiting:
                index = waiting.pop(0)
                tokens[index].append(batch.start(prompts[index], samplings[index]))
                tokens[index] += batch.join(place, samplings[index]).tokens
                busy[place] = index
        for place, finished in batch.step().items():
            tokens[busy[place]] += finished.tokens
            if len(tokens[busy[place]]) >= COUNTS[busy[place]]:
                batch.leave(place)
                del busy[place]
    return [found[:count] for found, count in zip(tokens, COUNTS, strict=True)]


@pytest.mark.parametrize("name", ["none", "mtp", "dflash2"])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_greedy_rows(reference_artifact: Artifact, reference_runs: list[dict[str, Any]], name: str, size: int) -> None:
    plan = resolve(SpeculationRequest(name), reference_artifact.manifest, RunContext("onnxruntime"))
    prompts = [case["prompt_ids"] for case in reference_runs[: len(COUNTS)]]
    found = run(load_batch(reference_artifact, plan, size), size, prompts, [None] * len(prompts))
    assert found == [case["greedy_ids"][:count] for case, count in zip(reference_runs, COUNTS, strict=False)]


@pytest.mark.parametrize("name", ["none", "mtp", "dflash2"])
@pytest.mark.parametrize("size", [2, 5])
def test_greedy_and_sampled_rows_beside_each_other(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], name: str, size: int
) -> None:
    plan = resolve(SpeculationRequest(name), reference_artifact.manifest, RunContext("onnxruntime"))
    prompts = [case["prompt_ids"] for case in reference_runs[: len(COUNTS)]]
    samplings = [
        LIKELIEST if index % 3 == 0 else Sampling(0.6 + index / 10, 20 * (index % 2), 0.95, 0.0, seed=index)
        for index in range(len(prompts))
    ]
    # A bias must not stay with a place when its sequence ends.
    for index in (0, 4):
        biased = new_tokens(open_decoder(reference_artifact, "none"), prompts[index], 3)
        samplings[index] = replace(samplings[index], logit_bias=tuple((token, -100.0) for token in set(biased)))
    batch = load_batch(reference_artifact, plan, size, sampling=samplings[0])
    found = run(batch, size, prompts, [*samplings])
    decoder = open_decoder(reference_artifact, name, sampling=samplings[0])
    for index, prompt in enumerate(prompts):
        decoder.sample_as(samplings[index])
        assert found[index] == new_tokens(decoder, prompt, COUNTS[index]), index
