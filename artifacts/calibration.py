"""What `dfc tune` measured on one device, as the manifest keeps it."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dfc.artifacts.frozen import Frozen

Drafter = Literal["mtp", "dflash2", "dflash"]
Way = Drafter | Literal["none"]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0)]


class RoundTimes(Frozen):
    """Seconds of one round that drafts `draft_tokens` tokens, one for each of the calibration's contexts."""

    drafter: Way
    draft_tokens: int = Field(ge=0)
    seconds: tuple[Seconds, ...]

    @model_validator(mode="after")
    def _check_draft_tokens(self) -> Self:
        if (self.drafter == "none") != (self.draft_tokens == 0):
            raise ValueError(f"{self.draft_tokens} draft tokens do not go with the drafter {self.drafter}")
        return self


class Threshold(Frozen):
    """The fastest way for sequences of less than `below` tokens (None: of any length), at the measured acceptance."""

    below: int | None = Field(gt=0)
    drafter: Way
    draft_tokens: int = Field(ge=0)
    tokens_per_second: float = Field(gt=0)


class Calibration(Frozen):
    """Times of rounds and acceptance on one device, and the thresholds that follow from them.

    `acceptance` has for each drafter the share of drafts at a position that held, of those whose predecessors all did.
    A later `version` is for figures that mean something else.
    """

    version: Literal[1] = 1
    library: str
    library_version: str
    contexts: tuple[Annotated[int, Field(gt=0)], ...] = Field(min_length=1)
    rounds: tuple[RoundTimes, ...]
    acceptance: dict[Drafter, tuple[Share, ...]]
    thresholds: tuple[Threshold, ...]

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if list(self.contexts) != sorted(set(self.contexts)):
            raise ValueError("the contexts do not rise")
        ways = [(entry.drafter, entry.draft_tokens) for entry in self.rounds]
        if len(set(ways)) != len(ways):
            raise ValueError("a way to decode has two entries in rounds")
        if ("none", 0) not in ways:
            raise ValueError("rounds has no entry of plain decoding")
        for entry in self.rounds:
            if len(entry.seconds) != len(self.contexts):
                raise ValueError(f"rounds of {entry.drafter} {entry.draft_tokens} lack a time for each context")
            known = 0 if entry.drafter == "none" else len(self.acceptance.get(entry.drafter, ()))
            if entry.draft_tokens > known:
                raise ValueError(f"acceptance has no position {entry.draft_tokens} of {entry.drafter}")
        ends = [threshold.below for threshold in self.thresholds]
        if ends[-1:] != [None] or not all(_rises(left, right) for left, right in itertools.pairwise(ends)):
            raise ValueError("the thresholds do not rise to one without end")
        return self

    @property
    def drafters(self) -> Iterator[Drafter]:
        """The drafters that were measured."""
        yield from self.acceptance


def _rises(left: int | None, right: int | None) -> bool:
    return left is not None and (right is None or left < right)
