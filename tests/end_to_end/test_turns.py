"""A second turn takes in what is new only, and gives what decoding the whole conversation at once gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.artifacts import Artifact
from dfc.runtime.decode import Decoder, PlainDecoder, Round, SpeculativeDecoder
from dfc.runtime.engine import Array
from dfc.runtime.generate import Generation, Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from tests.end_to_end.decoding import build
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash2, write_target

SPECULATIONS = ("none", "mtp", "dflash2")
PREFILL_ROWS = 8
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def random_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    root = tmp_path_factory.mktemp("turns")
    geometry = TargetGeometry(layers="gagg", mtp=True)
    target = write_target(root / "target", geometry)
    return build(root / "artifact", target, write_dflash2(root / "draft", geometry, DraftGeometry()))


@pytest.fixture(scope="module", params=SPECULATIONS)
def pair(request: pytest.FixtureRequest, reference_artifact: Artifact) -> tuple[Decoder, Decoder]:
    """Two decoders of the reference model: one that goes on, and one that always starts from nothing."""
    return open_decoder(reference_artifact, request.param), open_decoder(reference_artifact, request.param)


def open_decoder(artifact: Artifact, speculation: str) -> Decoder:
    plan = resolve(SpeculationRequest(speculation), artifact.manifest, RunContext("onnxruntime"))
    return load_decoder(artifact, plan, "onnxruntime", PREFILL_ROWS)


def decode(
    decoder: Decoder, prompt: Sequence[int], count: int, stops: frozenset[int] = frozenset(), keep: int = 0
) -> tuple[Generation, list[Round]]:
    rounds: list[Round] = []
    generation = generate(decoder, prompt, Limits(count, 4096, stops), keep=keep, on_round=rounds.append)
    return generation, rounds


def fresh(decoder: Decoder, prompt: Sequence[int], count: int) -> tuple[Generation, list[Round]]:
    """Decode from nothing: no prompt begins with the token that the decoder is made to hold first."""
    decoder.start([3])
    generation, rounds = decode(decoder, prompt, count)
    assert generation.statistics.reused_tokens == 0
    return generation, rounds


def states(decoder: Decoder) -> dict[str, Array]:
    assert isinstance(decoder, PlainDecoder | SpeculativeDecoder)
    target = decoder._target
    return {
        name: buffer.read()[0][:, : target.length] if name.endswith("_cache") else buffer.read()[0]
        for name, buffer in target.states.snapshot().items()
    }


def assert_same_states(left: Decoder, right: Decoder) -> None:
    expected = states(right)
    for name, value in states(left).items():
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0.0)))
        np.testing.assert_allclose(value, expected[name], rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=name)


@pytest.mark.parametrize("kept", range(1, 13))
def test_after_a_stop_anywhere_in_a_block(
    pair: tuple[Decoder, Decoder], reference_runs: list[dict[str, list[int]]], kept: int
) -> None:
    """The first answer is cut after `kept` tokens, wherever in a block that falls."""
    going_on, other = pair
    case = reference_runs[2]
    first, continuation = case["prompt_ids"], [220, 1, 77, 512, 9]
    going_on.start([3])
    answer, rounds = decode(going_on, first, kept)
    prompt = [*first, *answer.token_ids, *continuation]
    second, second_rounds = decode(going_on, prompt, 24)
    expected, expected_rounds = fresh(other, prompt, 24)
    assert second.token_ids == expected.token_ids
    assert second_rounds == expected_rounds
    assert_same_states(going_on, other)
    # The tokens of the last block are taken in again where some of it was dropped, and the new ones.
    again = len(prompt) - second.statistics.reused_tokens - len(continuation)
    dropped = sum(len(entry.tokens) for entry in rounds) + 1 - kept
    last = len(rounds[-1].tokens) if rounds else 1
    assert again == (1 if dropped == 0 else 0 if dropped == 1 else last - dropped + 1)


def test_a_prompt_that_differs_starts_from_nothing(pair: tuple[Decoder, Decoder]) -> None:
    going_on, other = pair
    decode(going_on, [40, 41, 42, 43], 20)
    second, rounds = decode(going_on, [40, 41, 99, 43, 8], 20)
    assert second.statistics.reused_tokens == 0
    assert (second.token_ids, rounds) == (fresh(other, [40, 41, 99, 43, 8], 20)[0].token_ids, rounds)
    assert_same_states(going_on, other)


@pytest.mark.parametrize("size", [3, 8, 15, 16, 17, 20])
def test_a_beginning_of_what_was_decoded_is_decoded_again(pair: tuple[Decoder, Decoder], size: int) -> None:
    """The next token is asked for, so one call at least is made."""
    going_on, other = pair
    prompt = list(range(50, 70))
    going_on.start([3])
    first, _ = decode(going_on, prompt, 5)
    for again in (prompt[:size], prompt[:size], [*prompt, *first.token_ids[:3]], [*prompt, *first.token_ids]):
        generation, rounds = decode(going_on, again, 12)
        expected, expected_rounds = fresh(other, again, 12)
        assert (generation.token_ids, rounds) == (expected.token_ids, expected_rounds)
        assert_same_states(going_on, other)


def test_the_kept_state_serves_a_history_that_was_written_anew(pair: tuple[Decoder, Decoder]) -> None:
    """Templates that drop an answer's reasoning change what comes after the user's message."""
    going_on, other = pair
    user, header = list(range(100, 121)), [1, 60, 61]
    going_on.start([3])
    decode(going_on, [*user, *header, 70, 71], 30, keep=len(user))
    prompt = [*user, *header, 90, 91, 2, *range(300, 330), *header]
    expected, expected_rounds = fresh(other, prompt, 20)
    for reused in (len(user), len(prompt) - len(header)):
        second, rounds = decode(going_on, prompt, 20, keep=len(prompt) - len(header))
        assert (second.token_ids, rounds) == (expected.token_ids, expected_rounds)
        assert_same_states(going_on, other)
        assert second.statistics.reused_tokens == reused


def test_a_kept_state_of_tokens_given_back_is_not_used(pair: tuple[Decoder, Decoder]) -> None:
    going_on, other = pair
    going_on.start([3])
    prompt = list(range(100, 120))
    decode(going_on, prompt, 1, keep=20)
    different = [*prompt[:18], *range(200, 206)]
    assert decode(going_on, different, 8)[0].statistics.reused_tokens == 16
    again = [*different[:22], 50]
    second, _ = decode(going_on, again, 12)
    assert second.token_ids == fresh(other, again, 12)[0].token_ids
    assert_same_states(going_on, other)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
@pytest.mark.parametrize("speculation", SPECULATIONS)
def test_any_sequence_of_prompts(
    random_artifact: Artifact, decoders: dict[str, tuple[Decoder, Decoder]], speculation: str, data: st.DataObject
) -> None:
    """Prompts that share any beginning with what was decoded before, with any length kept."""
    if speculation not in decoders:
        decoders[speculation] = open_decoder(random_artifact, speculation), open_decoder(random_artifact, speculation)
    going_on, other = decoders[speculation]
    tokens = st.lists(st.integers(4, 300), min_size=1, max_size=20)
    known: list[int] = []
    for _ in range(data.draw(st.integers(2, 5))):
        shared = data.draw(st.integers(0, len(known)))
        prompt = [*known[:shared], *data.draw(tokens)]
        keep = data.draw(st.integers(0, len(prompt)))
        count = data.draw(st.integers(1, 16))
        generation, rounds = decode(going_on, prompt, count, keep=keep)
        expected, expected_rounds = fresh(other, prompt, count)
        assert (generation.token_ids, rounds) == (expected.token_ids, expected_rounds)
        assert_same_states(going_on, other)
        known = [*prompt, *generation.token_ids]


@pytest.fixture(scope="module")
def decoders() -> dict[str, tuple[Decoder, Decoder]]:
    """Decoders opened so far, by speculation."""
    return {}
