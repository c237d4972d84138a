"""What a drafter's file says about it: all that resolution and loading need to know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dfc.artifacts import Component
from dfc.runtime.engine import Engine
from dfc.runtime.errors import RunError
from dfc.runtime.proposal import Proposal
from dfc.runtime.sampling import Sampling
from dfc.runtime.states import States
from dfc.runtime.target import Block


class Drafter(Protocol):
    """One sequence's drafter."""

    draft_tokens: int
    states: States
    length: int
    """Rows taken in."""

    def reset(self) -> None:
        """Forget the sequence."""

    def rewind(self, length: int) -> None:
        """Forget the rows past the first `length` taken in."""

    def follow(self, block: Block) -> None:
        """Take in committed rows without drafting: a prompt chunk that is not the last."""

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes so; a drafter on a stage that takes the likeliest tokens goes on doing that."""

    def draft(self, block: Block) -> Proposal:
        """Take in committed rows and return buffers whose first `draft_tokens` slots are proposed after the anchor.

        The call may still run when this returns: reading the buffers waits for it.
        """


@dataclass(frozen=True)
class Limits:
    """Draft tokens a round takes by default and at most."""

    default: int
    most: int


@dataclass(frozen=True)
class DrafterKind:
    """A kind of drafter. `auto` takes the one of the lowest ``rank`` that the artifact holds.

    ``stage`` names the stage of a component that drafts a number of tokens,
    ``open`` makes a drafter from that stage's engine.
    """

    name: str
    rank: int
    limits: Callable[[Component], Limits]
    stage: Callable[[Component, int], str]
    open: Callable[[Engine, int], Drafter]


def most_draft_tokens(component: Component) -> int:
    """Return the most tokens a round of this component may draft.

    Raises:
        RunError: the manifest does not say.
    """
    value = component.parameters.get("draft_tokens")
    if not isinstance(value, int):
        raise RunError(f"the manifest has no draft_tokens for the drafter from {component.source}; build it again")
    return value
