"""A policy that learns: measured times of a round and the acceptance seen so far say which choice is the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dfc.runtime.policy import NONE, Choice

WEIGHT = 0.12
"""What one judged draft counts in an estimate: a drafter that turned useless is left after some ten rounds."""

MARGIN = 0.02
"""How much faster another choice must be to be taken: a switch costs a call that catches up."""

EXPLORATION = 0.02
"""Share of the decoding time that looking at other choices may lose."""

PAUSE = 16
"""Rounds between two looks, twice as many after each that found nothing."""

LONGEST_PAUSE = 128


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of a round by (drafter, draft tokens), each as (sequence length, seconds) with rising lengths."""

    points: Mapping[tuple[str, int], tuple[tuple[int, float], ...]]

    def seconds(self, drafter: str, draft_tokens: int, length: int) -> float:
        """Return the time at a sequence length: interpolated, and that of the nearest point outside them."""
        lengths, seconds = zip(*self.points[drafter, draft_tokens], strict=True)
        return float(np.interp(length, lengths, seconds))


@dataclass(frozen=True)
class Measurements:
    """What `dfc tune` found: times of rounds, among them those of plain ones (none, 0), and for each drafter the
    acceptance of draft i given that all before it held."""

    times: RoundTimes
    acceptance: Mapping[str, tuple[float, ...]]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sequence lengths measured."""
        return tuple(length for length, _ in self.times.points[NONE, 0])


def expected_tokens(acceptance: tuple[float, ...] | list[float], draft_tokens: int) -> float:
    """Return the tokens of a round: the target's own and every draft by the probability that it holds."""
    total = held = 1.0
    for probability in acceptance[:draft_tokens]:
        held *= probability
        total += held
    return total


@dataclass(frozen=True)
class AdaptiveRule:
    """Begins every sequence with what was measured, and goes on with what it sees."""

    measurements: Measurements

    def begin(self) -> AdaptivePolicy:
        return AdaptivePolicy(self.measurements)

    def describe(self) -> list[dict[str, object]]:
        """Return, for each span of sequence lengths, the choice that a sequence begins with and its expected rate."""
        rows: list[dict[str, object]] = []
        policy = self.begin()
        lengths = self.measurements.lengths
        for length, below in zip(lengths, [*lengths[1:], None], strict=True):
            drafter, draft_tokens = policy.fastest(length)
            rate = policy.rate((drafter, draft_tokens), length)
            rows.append({"drafter": drafter, "below": below, "draft_tokens": draft_tokens, "tokens_per_second": rate})
        return rows


class AdaptivePolicy:
    """Takes the (drafter, draft tokens) of the most expected tokens a second, plain rounds among them.

    Now and then, within a budget, it looks at a drafter that it does not use, and goes on looking while that pays, so
    it comes back to a drafter whose acceptance returns. One sequence at a time: `reset` begins another.
    """

    def __init__(self, measurements: Measurements) -> None:
        self._times = measurements.times
        self._measured = measurements.acceptance
        self._choices = tuple(measurements.times.points)
        self.reset()

    def reset(self) -> None:
        self._acceptance = {name: list(values) for name, values in self._measured.items()}
        self._spent = self._lost = 0.0
        self._pause, self._waited = PAUSE, 0
        self._unseen = dict.fromkeys(self._acceptance, 0)
        self._best: tuple[str, int] | None = None
        self._looking: tuple[str, int] | None = None
        self._length = 0

    def possible(self, length: int) -> frozenset[str]:
        return frozenset(self._acceptance)

    def rate(self, choice: tuple[str, int], length: int) -> float:
        """Return the expected tokens a second of a choice."""
        drafter, draft_tokens = choice
        tokens = expected_tokens(self._acceptance.get(drafter, []), draft_tokens)
        return tokens / self._times.seconds(drafter, draft_tokens, length)

    def fastest(self, length: int) -> tuple[str, int]:
        """Return the choice with the highest rate; the first of equal ones."""
        return max(self._choices, key=lambda choice: self.rate(choice, length))

    def choose(self, length: int, previous: Choice | None) -> Choice:
        self._length = length
        fastest = self.fastest(length)
        if self._best is not None and self.rate(fastest, length) < self.rate(self._best, length) * (1 + MARGIN):
            fastest = self._best
        self._best = fastest
        if self._looking is None or self._looking[0] == fastest[0]:
            self._looking = self._look(fastest, length)
        if self._looking is None:
            return Choice(*fastest, f"{_named(fastest)} is expected to be fastest: {self.rate(fastest, length):.0f}/s")
        reason = f"to see whether {self._looking[0]} beats {_named(fastest)} by now"
        return Choice(*self._looking, reason)

    def observe(self, choice: Choice, accepted: int) -> None:
        seconds = self._times.seconds(choice.drafter, choice.draft_tokens, self._length)
        self._spent += seconds
        self._waited += 1
        for name in self._unseen:
            self._unseen[name] = 0 if name == choice.drafter else self._unseen[name] + 1
        if choice.draft_tokens:
            self._learn(choice.drafter, choice.draft_tokens, accepted)
        if self._looking is None or self._best is None:
            return
        # What the best choice would have taken for the same tokens.
        lost = seconds - (accepted + 1) / self.rate(self._best, self._length)
        self._lost += max(lost, 0.0)
        self._waited = 0
        if lost > 0:
            self._looking = None
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            self._pause = PAUSE

    def _learn(self, drafter: str, drafted: int, accepted: int) -> None:
        """Move the estimates of the drafts that were judged: those that held, and the first that did not."""
        estimates, measured = self._acceptance[drafter], self._measured[drafter]
        for position in range(min(accepted + 1, drafted)):
            estimates[position] += WEIGHT * ((position < accepted) - estimates[position])
        if accepted == drafted:
            # Nothing is known of longer drafts by now: without this, one that was bad once would never be tried again.
            for position in range(drafted, len(estimates)):
                estimates[position] += WEIGHT / 2 * max(measured[position] - estimates[position], 0.0)

    def _look(self, best: tuple[str, int], length: int) -> tuple[str, int] | None:
        """Return the choice to look at in the place of the best one: of the drafter that was unseen the longest."""
        others = [name for name in self._unseen if name != best[0]]
        if not others or self._waited < self._pause:
            return None
        drafter = max(others, key=lambda name: self._unseen[name])
        # As short as shows anything: enough drafts to beat the best choice when all of them hold.
        best_rate = self.rate(best, length)
        for choice in sorted(choice for choice in self._choices if choice[0] == drafter):
            seconds = self._times.seconds(*choice, length)
            enough = (choice[1] + 1) / seconds > best_rate
            if enough and self._lost + seconds - 1 / best_rate <= EXPLORATION * self._spent:
                return choice
        return None


def _named(choice: tuple[str, int]) -> str:
    return "plain decoding" if choice[0] == NONE else f"{choice[0]} with {choice[1]}"
