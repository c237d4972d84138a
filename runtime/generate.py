"""From a prompt to a finished generation: limits, stops and statistics around a decoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dfc.runtime.decode import Decoder, Round
from dfc.runtime.statistics import Statistics, StatisticsRecorder

FinishReason = Literal["stop", "length", "context"]


@dataclass(frozen=True)
class Limits:
    """What ends a generation: a stop token, `max_new` tokens, or `max_context` tokens with the prompt's."""

    max_new: int
    max_context: int
    stop_token_ids: frozenset[int]


@dataclass(frozen=True)
class Generation:
    """The new tokens (a stop token is the last of them), why they end, and how the rounds went."""

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    statistics: Statistics


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    limits: Limits,
    *,
    on_tokens: Callable[[Sequence[int]], None] = lambda tokens: None,
    on_round: Callable[[Round], None] = lambda finished: None,
) -> Generation:
    """Decode until something in `limits` ends it.

    `on_tokens` gets every new token once, in order; `on_round` gets every round whole, tokens past the end included.
    """
    recorder = StatisticsRecorder()
    room = min(limits.max_new, limits.max_context - len(prompt))
    token_ids: list[int] = []

    def take(tokens: Sequence[int]) -> FinishReason | None:
        for position, token in enumerate(tokens):
            if token in limits.stop_token_ids:
                reason: FinishReason | None = "stop"
            elif len(token_ids) + position + 1 == room:
                reason = "length" if room == limits.max_new else "context"
            else:
                continue
            kept = tokens[: position + 1]
            break
        else:
            reason, kept = None, tokens
        token_ids.extend(kept)
        on_tokens(kept)
        return reason

    began = time.perf_counter()
    first = decoder.start(prompt)
    recorder.prefill_seconds = time.perf_counter() - began
    finish_reason = take((first,))
    began = time.perf_counter()
    while finish_reason is None:
        finished = decoder.step()
        recorder.add(finished)
        on_round(finished)
        finish_reason = take(finished.tokens)
    recorder.decode_seconds = time.perf_counter() - began
    return Generation(tuple(token_ids), finish_reason, recorder.finish(len(token_ids)))
