"""From a prompt to a finished generation: limits, stops and statistics around a decoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dfc.runtime.decode import Decoder, Round
from dfc.runtime.errors import RunError
from dfc.runtime.statistics import Statistics, StatisticsRecorder

FinishReason = Literal["stop", "length", "context", "interrupted"]


@dataclass(frozen=True)
class Limits:
    """What ends a generation: a stop token, `max_new` tokens, or `max_context` tokens with the prompt's."""

    max_new: int
    max_context: int
    stop_token_ids: frozenset[int]


@dataclass(frozen=True)
class Generation:
    """The new tokens (what completes a stop is the last of them), why they end, and how the rounds went.

    ``stop_reason`` is the stop that was met: a string, or the id of a stop token; None where none was.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    statistics: Statistics


def check_room(prompt_tokens: int, limits: Limits) -> None:
    """Check that at least one new token fits.

    Raises:
        RunError: the prompt fills the context.
    """
    if prompt_tokens >= limits.max_context:
        raise RunError(
            f"the prompt has {prompt_tokens} tokens, which leaves no room in the artifact's context of"
            f" {limits.max_context}; shorten it or build with a larger --max-context"
        )


class Answer:
    """An answer while its tokens come: what is kept of them, and what ends it."""

    def __init__(self, prompt_tokens: int, limits: Limits, watch: Callable[[int], str | None]) -> None:
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._limits = limits
        self._watch = watch
        self._room = min(limits.max_new, limits.max_context - prompt_tokens)

    def take(self, tokens: Sequence[int]) -> Sequence[int]:
        """Take in a round's tokens and return those up to the answer's end."""
        kept = 0
        while self.finish_reason is None and kept < len(tokens):
            token = tokens[kept]
            kept += 1
            self.token_ids.append(token)
            self._stop_reason = token if token in self._limits.stop_token_ids else self._watch(token)
            if self._stop_reason is not None:
                self.finish_reason = "stop"
            elif len(self.token_ids) == self._room:
                self.finish_reason = "length" if self._room == self._limits.max_new else "context"
        return tokens[:kept]

    def finish(self, recorder: StatisticsRecorder) -> Generation:
        """Return the answer that has ended."""
        assert self.finish_reason is not None
        statistics = recorder.finish(len(self.token_ids))
        return Generation(tuple(self.token_ids), self.finish_reason, self._stop_reason, statistics)


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    limits: Limits,
    *,
    keep: int = 0,
    watch: Callable[[int], str | None] = lambda token: None,
    interrupted: Callable[[], bool] = lambda: False,
    on_tokens: Callable[[Sequence[int]], None] = lambda tokens: None,
    on_round: Callable[[Round], None] = lambda finished: None,
) -> Generation:
    """Decode until something in `limits` ends it, `watch` finds a stop string, or it is `interrupted`.

    `keep` is as in `Decoder.start`. `watch` gets every new token but a stop token and returns the stop string that it
    completes; `interrupted` is asked after every round. `on_tokens` gets a round's tokens up to the end; `on_round`
    gets every round whole, tokens past the end included.

    Raises:
        RunError: the prompt fills the context.
    """
    check_room(len(prompt), limits)
    answer = Answer(len(prompt), limits, watch)
    recorder = StatisticsRecorder(prompt_tokens=len(prompt))

    def take(tokens: Sequence[int]) -> None:
        on_tokens(answer.take(tokens))
        if answer.finish_reason is None and interrupted():
            answer.finish_reason = "interrupted"

    began = time.perf_counter()
    first = decoder.start(prompt, keep)
    recorder.reused_tokens = decoder.reused
    recorder.prefill_seconds = time.perf_counter() - began
    take((first,))
    began = time.perf_counter()
    while answer.finish_reason is None:
        finished = decoder.step()
        recorder.add(finished)
        on_round(finished)
        take(finished.tokens)
    recorder.decode_seconds = time.perf_counter() - began
    return answer.finish(recorder)
