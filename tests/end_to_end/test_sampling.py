"""Sampled decoding as a whole: distributions against transformers, and what a seed fixes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dfc.artifacts import Artifact
from dfc.runtime.decode import Round
from dfc.runtime.engine import Array
from dfc.runtime.generate import Limits, generate
from dfc.runtime.sampling import Sampling
from tests.compiler.test_sampling import expected_distribution
from tests.end_to_end.decoding import new_tokens, open_decoder
from tests.statistics import chi_square_p

SEQUENCES = 1000
POSITIONS = 3
SAMPLING = Sampling(temperature=1.3, top_k=6, top_p=0.95, min_p=0.0, seed=0)


def exact_marginals(model: Any, prompt: list[int], sampling: Sampling) -> list[Array]:
    """Return the probabilities of the token at each position, over all that may stand before it."""
    settings = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    prefixes: dict[tuple[int, ...], float] = {(): 1.0}
    marginals = []
    for _ in range(POSITIONS):
        ids = torch.tensor([[*prompt, *prefix] for prefix in prefixes])
        with torch.inference_mode():
            logits = model(ids).logits[:, -1].numpy()
        weights = np.array(list(prefixes.values()))
        following = expected_distribution(logits, *settings)
        marginals.append(weights @ following)
        prefixes = {
            (*prefix, int(token)): weight * row[token]
            for prefix, weight, row in zip(prefixes, weights, following, strict=True)
            for token in np.flatnonzero(row)
        }
    return marginals


@pytest.mark.slow
@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_every_position_has_the_distribution_of_the_target(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], reference_model: Any, speculation: str
) -> None:
    prompt = min((case["prompt_ids"] for case in reference_runs), key=len)
    marginals = exact_marginals(reference_model, prompt, SAMPLING)
    decoder = open_decoder(reference_artifact, speculation, sampling=SAMPLING)
    sequences = []
    for seed in range(SEQUENCES):
        decoder.sample_as(replace(SAMPLING, seed=seed))
        sequences.append(new_tokens(decoder, prompt, POSITIONS))
    tokens = np.array(sequences)
    for position, probabilities in enumerate(marginals):
        counts = np.bincount(tokens[:, position], minlength=len(probabilities))
        assert chi_square_p(counts, probabilities) > 1e-4, position


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_a_seed_fixes_the_tokens(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], speculation: str
) -> None:
    prompt = reference_runs[2]["prompt_ids"]
    decoder = open_decoder(reference_artifact, speculation, sampling=SAMPLING)
    first = new_tokens(decoder, prompt, 40)
    assert new_tokens(decoder, prompt, 40) == first
    in_pieces = open_decoder(reference_artifact, speculation, prefill_rows=3, sampling=SAMPLING)
    assert new_tokens(in_pieces, prompt, 40) == first
    decoder.sample_as(replace(SAMPLING, seed=SAMPLING.seed + 1))
    assert new_tokens(decoder, prompt, 40) != first


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_the_sampling_stages_at_temperature_zero_are_greedy(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], speculation: str
) -> None:
    decoder = open_decoder(reference_artifact, speculation, sampling=replace(SAMPLING, temperature=0.0))
    for case in reference_runs[:4]:
        assert new_tokens(decoder, case["prompt_ids"], 60) == case["greedy_ids"][:60]


def test_with_one_candidate_every_drafter_accepts_as_in_greedy_decoding(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]]
) -> None:
    case = reference_runs[3]
    decoder = open_decoder(reference_artifact, "dflash2", sampling=replace(SAMPLING, top_k=1))
    rounds: list[Round] = []
    generation = generate(decoder, case["prompt_ids"], Limits(96, 2048, frozenset()), on_round=rounds.append)
    assert generation.token_ids == tuple(case["greedy_ids"])
    assert [finished.accepted for finished in rounds] == [entry["accepted"] for entry in case["dflash2_rounds"]]
