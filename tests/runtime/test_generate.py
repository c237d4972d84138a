"""Limits, stops and statistics around a decoder that plays a script."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfc.runtime.decode import Round, chunks
from dfc.runtime.errors import RunError
from dfc.runtime.generate import FinishReason, Limits, generate


class Script:
    """Yields given rounds."""

    reused = 0

    def __init__(self, first: int, rounds: Sequence[Round]) -> None:
        self._first = first
        self._rounds = iter(rounds)

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        return self._first

    def step(self) -> Round:
        return next(self._rounds)


ROUNDS = (Round(10, (11, 12, 99), 2, (11, 12, 13)), Round(13, (14, 15, 16), 0, (20,)), Round(20, (21,), 1, (21, 22)))


@pytest.mark.parametrize(
    "limits, tokens, reason",
    [
        (Limits(1, 100, frozenset()), (10,), "length"),
        (Limits(3, 100, frozenset()), (10, 11, 12), "length"),
        (Limits(4, 100, frozenset()), (10, 11, 12, 13), "length"),
        (Limits(100, 7, frozenset()), (10, 11, 12, 13, 20), "context"),
        (Limits(100, 100, frozenset({12})), (10, 11, 12), "stop"),
        (Limits(3, 100, frozenset({12})), (10, 11, 12), "stop"),
        (Limits(100, 100, frozenset({10})), (10,), "stop"),
    ],
)
def test_what_ends_a_generation(limits: Limits, tokens: tuple[int, ...], reason: FinishReason) -> None:
    streamed: list[int] = []
    generation = generate(Script(10, ROUNDS), [1, 2], limits, on_tokens=streamed.extend)
    assert (generation.token_ids, generation.finish_reason) == (tokens, reason)
    assert tuple(streamed) == tokens


@pytest.mark.parametrize(
    "limits, tokens, stop",
    [
        (Limits(100, 100, frozenset()), (10, 11, 12), "twelve"),
        (Limits(3, 100, frozenset()), (10, 11, 12), "twelve"),
        (Limits(100, 100, frozenset({12})), (10, 11, 12), 12),
        (Limits(100, 100, frozenset({11})), (10, 11), 11),
        (Limits(2, 100, frozenset()), (10, 11), None),
    ],
)
def test_a_stop_string_ends_with_its_token(limits: Limits, tokens: tuple[int, ...], stop: str | int | None) -> None:
    watched: list[int] = []

    def watch(token: int) -> str | None:
        watched.append(token)
        return "twelve" if token == 12 else None

    generation = generate(Script(10, ROUNDS), [1], limits, watch=watch)
    assert (generation.token_ids, generation.stop_reason) == (tokens, stop)
    assert generation.finish_reason == ("length" if stop is None else "stop")
    assert tuple(watched) == (tokens[:-1] if isinstance(stop, int) else tokens)


def test_an_interrupted_generation_ends_with_its_round() -> None:
    finished: list[Round] = []
    generation = generate(
        Script(10, ROUNDS),
        [1],
        Limits(100, 100, frozenset()),
        on_round=finished.append,
        interrupted=lambda: len(finished) == 2,
    )
    assert (generation.token_ids, generation.finish_reason) == ((10, 11, 12, 13, 20), "interrupted")
    assert generation.statistics.rounds == 2


def test_a_stop_goes_before_an_interruption() -> None:
    limits = Limits(100, 100, frozenset({10}))
    assert generate(Script(10, ()), [1], limits, interrupted=lambda: True).finish_reason == "stop"


def test_a_prompt_that_fills_the_context_is_refused() -> None:
    with pytest.raises(RunError, match="the prompt has 2 tokens"):
        generate(Script(10, ROUNDS), [1, 2], Limits(5, 2, frozenset()))


def test_statistics_count_whole_rounds() -> None:
    finished = generate(Script(10, ROUNDS), [1], Limits(7, 100, frozenset())).statistics
    assert (finished.rounds, finished.drafted_tokens, finished.accepted_tokens) == (3, 7, 3)
    assert finished.accepted_per_position == (2, 1, 0)
    assert finished.tokens_per_round == pytest.approx(2.0)
    assert finished.acceptance_rate == pytest.approx(3 / 7)


@given(st.lists(st.integers(), min_size=1, max_size=40), st.integers(1, 50))
def test_chunks_are_the_prompt(prompt: list[int], rows: int) -> None:
    pieces = list(chunks(prompt, rows))
    assert [token for piece, _ in pieces for token in piece] == prompt
    assert all(0 < len(piece) <= rows for piece, _ in pieces)
    assert [following for _, following in pieces] == [piece[0] for piece, _ in pieces[1:]] + [None]
