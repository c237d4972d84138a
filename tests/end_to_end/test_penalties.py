"""Penalties with and without drafters against a token-by-token loop over transformers' logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dfc.artifacts import Artifact
from dfc.runtime.decode import Decoder
from dfc.runtime.sampling import Sampling
from tests.end_to_end.decoding import new_tokens, open_decoder

NEW_TOKENS = 32
Penalties = tuple[float, float, float]

PENALTIES: list[Penalties] = [(1.3, 0.0, 0.0), (1.0, 0.7, 0.0), (1.0, 0.0, 1.5), (1.1, 0.3, 0.4), (0.9, -0.2, 0.0)]


def expected_tokens(
    model: Any, prompt: list[int], penalties: Penalties, count: int, biases: dict[int, float] | None = None
) -> list[int]:
    """Decode greedily with biases and then penalties, as transformers orders them, one token at a time."""
    repetition, frequency, presence = penalties
    tokens: list[int] = []
    with torch.inference_mode():
        for _ in range(count):
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1].double()
            for token, bias in (biases or {}).items():
                logits[token] += bias
            for token in {*prompt, *tokens}:
                logits[token] *= repetition if logits[token] < 0 else 1 / repetition
            for token in set(tokens):
                logits[token] -= frequency * tokens.count(token) + presence
            tokens.append(int(logits.argmax()))
    return tokens


def open_penalised(artifact: Artifact, speculation: str, penalties: Penalties) -> Decoder:
    return open_decoder(artifact, speculation, sampling=Sampling(0.0, 0, 1.0, 0.0, 0, *penalties))


@pytest.mark.parametrize("penalties", PENALTIES)
def test_tokens_equal_those_of_a_loop(
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    reference_model: Any,
    penalties: Penalties,
) -> None:
    case = reference_runs[3]
    expected = expected_tokens(reference_model, case["prompt_ids"], penalties, NEW_TOKENS)
    assert expected != case["greedy_ids"][:NEW_TOKENS]
    for speculation in ("none", "mtp", "dflash2"):
        decoder = open_penalised(reference_artifact, speculation, penalties)
        assert new_tokens(decoder, case["prompt_ids"], NEW_TOKENS) == expected


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_an_answer_that_became_prompt_counts_as_prompt(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], reference_model: Any, speculation: str
) -> None:
    penalties = (1.1, 0.3, 0.4)
    decoder = open_penalised(reference_artifact, speculation, penalties)
    prompt = reference_runs[3]["prompt_ids"]
    following = [*prompt, *new_tokens(decoder, prompt, NEW_TOKENS), *reference_runs[0]["prompt_ids"]]
    expected = expected_tokens(reference_model, following, penalties, NEW_TOKENS)
    assert new_tokens(decoder, following, NEW_TOKENS) == expected
    assert decoder.reused > 0


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_biases_come_before_penalties(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], reference_model: Any, speculation: str
) -> None:
    case = reference_runs[3]
    # Against the likeliest tokens, and for one that a penalty makes much less likely.
    biases = {case["greedy_ids"][0]: -100.0, case["greedy_ids"][1]: -3.5, case["prompt_ids"][0]: 12.0}
    penalties = (1.5, 0.0, 0.0)
    expected = expected_tokens(reference_model, case["prompt_ids"], penalties, NEW_TOKENS, biases)
    assert expected != expected_tokens(reference_model, case["prompt_ids"], penalties, NEW_TOKENS)
    assert case["greedy_ids"][0] not in expected
    sampling = Sampling(0.0, 0, 1.0, 0.0, 0, *penalties, logit_bias=tuple(biases.items()))
    decoder = open_decoder(reference_artifact, speculation, sampling=sampling)
    assert new_tokens(decoder, case["prompt_ids"], NEW_TOKENS) == expected
    # The next sequence's biases take the place of these.
    decoder.sample_as(replace(sampling, logit_bias=()))
    assert new_tokens(decoder, case["prompt_ids"], NEW_TOKENS) == expected_tokens(
        reference_model, case["prompt_ids"], penalties, NEW_TOKENS
    )
