"""Policies: which drafter the next round uses, and how many tokens it drafts."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Protocol

NONE = "none"

HYSTERESIS = 64
"""Tokens that a sequence must fall below a threshold before the choice goes back: a chat that loses a few stays."""


@dataclass(frozen=True)
class Choice:
    """A drafter's name, or none, and how many tokens it drafts (0 with none)."""

    drafter: str
    draft_tokens: int
    reason: str


class Policy(Protocol):
    """Chooses for every round. A policy only says how: the tokens never depend on it."""

    def choose(self, length: int, previous: Choice | None) -> Choice:
        """Return the choice for a sequence of `length` committed tokens; `previous` is that of the round before."""

    def possible(self, length: int) -> frozenset[str]:
        """Return the drafters that may be chosen from `length` tokens on: the others need not follow any more."""

    def observe(self, choice: Choice, accepted: int) -> None:
        """Learn from the round that was chosen last: how many of its drafts held."""

    def reset(self) -> None:
        """Forget what was learnt: another sequence begins."""


class Rule(Protocol):
    """What a plan says of choosing; fixed, while a policy may learn."""

    def begin(self) -> Policy:
        """Return the policy for one decoder."""

    def describe(self) -> list[dict[str, object]]:
        """Return rows for the reports: a ``drafter``, its ``draft_tokens``, and the length ``below`` which it is used
        (None: without end)."""


@dataclass(frozen=True)
class Segment:
    """A drafter (or none) for sequences shorter than `below`; None is without end."""

    drafter: str
    below: int | None


@dataclass(frozen=True)
class LengthThresholds:
    """Chooses by the sequence's length; `draft_tokens` has the number of each drafter."""

    segments: tuple[Segment, ...]
    draft_tokens: dict[str, int]

    def begin(self) -> LengthThresholds:
        return self

    def describe(self) -> list[dict[str, object]]:
        return [
            {
                "drafter": segment.drafter,
                "below": segment.below,
                "draft_tokens": self.draft_tokens.get(segment.drafter, 0),
            }
            for segment in self.segments
        ]

    def observe(self, choice: Choice, accepted: int) -> None:
        """The thresholds stay as they are, whatever a round gives."""

    def reset(self) -> None:
        """There is nothing to forget."""

    def choose(self, length: int, previous: Choice | None) -> Choice:
        index = self._index(length)
        later = self._index(length + HYSTERESIS)
        if previous is not None and later != index and previous.drafter == self.segments[later].drafter:
            return self._choice(later, f"length {length} is less than {HYSTERESIS} below the threshold")
        segment = self.segments[index]
        bound = "past every threshold" if segment.below is None else f"below {segment.below}"
        return self._choice(index, f"length {length} is {bound}")

    def possible(self, length: int) -> frozenset[str]:
        left = self.segments[self._index(length) :]
        return frozenset(segment.drafter for segment in left) - {NONE}

    def _index(self, length: int) -> int:
        return next(
            index for index, segment in enumerate(self.segments) if segment.below is None or length < segment.below
        )

    def _choice(self, index: int, reason: str) -> Choice:
        drafter = self.segments[index].drafter
        return Choice(drafter, self.draft_tokens.get(drafter, 0), reason)


def parse_segments(text: str, drafters: tuple[str, ...]) -> tuple[Segment, ...]:
    """Parse thresholds such as ``mtp<4096<=dflash2<32768<=none``.

    Raises:
        ValueError: the text is not of that form; the message says what is wrong.
    """
    parts = re.split(r"<\s*(\d+)\s*<=", text)
    names = [name.strip() for name in parts[::2]]
    thresholds = [int(threshold) for threshold in parts[1::2]]
    known = (*drafters, NONE)
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no drafter; write one of {', '.join(known)} around each <N<=")
    if any(left == right for left, right in itertools.pairwise(names)):
        raise ValueError("the same drafter stands on both sides of a threshold; leave that threshold out")
    if any(left >= right for left, right in zip([0, *thresholds], thresholds, strict=False)):
        raise ValueError("the thresholds must rise from left to right, the first above 0")
    if set(names) == {NONE}:
        raise ValueError("it names no drafter; use --spec none to decode without one")
    return tuple(Segment(name, below) for name, below in zip(names, [*thresholds, None], strict=True))
