"""The decoding loops: draft, verify, accept, commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dfc.runtime.drafters.kind import Drafter
from dfc.runtime.history import History
from dfc.runtime.sampling import Sampling
from dfc.runtime.states import States
from dfc.runtime.target import AdvancingTarget, Block, VerifyingTarget

PREFILL_ROWS = 256
"""Prompt tokens a call takes: enough for full matrix products, few enough to bound memory."""


@dataclass(frozen=True)
class Round:
    """One step of the target: the token it starts from, the drafts after it, how many hold, and the tokens it adds.

    Where a policy chose, ``drafter`` and ``reason`` say what and why.
    """

    anchor: int
    proposed: tuple[int, ...]
    accepted: int
    tokens: tuple[int, ...]
    drafter: str = ""
    reason: str = ""


@dataclass(frozen=True)
class InFlight:
    """A sequence after its last round, for a batch to go on with: its ``length`` (committed tokens), the ``next_ids``
    after the rows of that round and the target's ``states``; with a drafter its ``drafter`` and the ``block`` that this
    has not taken in."""

    length: int
    next_ids: tuple[int, ...]
    states: States
    drafter: Drafter | None = None
    block: Block | None = None


class Decoder(Protocol):
    """One sequence being decoded.

    ``reused`` is how many leading tokens of the prompt the last `start` found in its states.
    """

    reused: int

    def warm_up(self) -> None:
        """Run every call of a round once, so that the first real one finds its memory in place; then forget it."""

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes from another distribution; for a decoder that was loaded to sample."""

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        """Take in the prompt, from where it leaves the tokens committed before, and return the first new token.

        The state after `keep` leading tokens is kept, for prompts to come that begin with these and one token more.
        """

    def step(self) -> Round:
        """Do one round."""


class PlainDecoder:
    """The target alone: every round adds one token."""

    def __init__(self, target: AdvancingTarget, prefill_rows: int = PREFILL_ROWS) -> None:
        self._target = target
        self._prefill_rows = prefill_rows
        self._history = History(target.states)
        self._anchor = 0
        self.reused = 0

    def warm_up(self) -> None:
        run_every_size(self, self._target, self._history.reset)

    def sample_as(self, sampling: Sampling) -> None:
        self._target.sample_as(sampling)

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        self.reused = self._target.length = self._history.continue_to(prompt)
        for chunk, _ in chunks(prompt, self._prefill_rows, self.reused, keep):
            self._anchor = self._target.advance(chunk, prompt=True)
            self._history.add(chunk)
            if self._target.length == keep:
                self._history.keep()
        return self._anchor

    def step(self) -> Round:
        anchor = self._anchor
        self._anchor = self._target.advance([anchor])
        self._history.add([anchor])
        return Round(anchor, (), 0, (self._anchor,))

    def in_flight(self) -> InFlight:
        """Return the sequence as it is."""
        return InFlight(self._target.length, (self._anchor,), self._target.states)


class SpeculativeDecoder:
    """A drafter proposes, the target judges: every round adds the accepted drafts and one token of the target's own."""

    def __init__(self, target: VerifyingTarget, drafter: Drafter, prefill_rows: int = PREFILL_ROWS) -> None:
        self._target = target
        self._drafter = drafter
        self._prefill_rows = prefill_rows
        self._history = History(target.states)
        self._block: Block | None = None
        self.reused = 0

    def warm_up(self) -> None:
        run_every_size(self, self._target, self._forget)

    def sample_as(self, sampling: Sampling) -> None:
        self._target.sample_as(sampling)
        self._drafter.sample_as(sampling)

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        self._continue_to(prompt)
        for chunk, following in chunks(prompt, self._prefill_rows, self.reused, keep):
            # The last chunk's rows wait: the first round's draft takes them in.
            if self._block is not None:
                self._drafter.follow(self._block)
            self._block = self._target.commit(chunk, following)
            self._history.add(chunk)
            if self._target.length == keep:
                self._history.keep()
        assert self._block is not None
        return self._block.anchor

    def step(self) -> Round:
        assert self._block is not None
        anchor = self._block.anchor
        proposal = self._drafter.draft(self._block)
        proposed, self._block = self._target.verify_drafted(anchor, proposal, self._drafter.draft_tokens)
        self._history.add((anchor, *proposed[: self._block.accepted]))
        return Round(anchor, tuple(proposed), self._block.accepted, self._block.next_ids)

    def in_flight(self) -> InFlight:
        """Return the sequence as it is after a round."""
        assert self._block is not None
        return InFlight(self._target.length, self._block.next_ids, self._target.states, self._drafter, self._block)

    def _forget(self) -> None:
        self._history.reset()
        self._drafter.reset()
        self._block = None

    def _continue_to(self, prompt: Sequence[int]) -> None:
        committed = self._target.length
        self.reused = self._target.length = self._history.continue_to(prompt)
        if self.reused < committed:
            # The drafter takes in a block only after the target's next call, so it has every row that is left.
            self._drafter.rewind(self.reused)
            self._block = None
        elif self._block is not None:
            following = prompt[self.reused]
            self._block = replace(self._block, next_ids=(*self._block.next_ids[:-1], following), anchor=following)


def run_every_size(decoder: Decoder, target: AdvancingTarget | VerifyingTarget, forget: Callable[[], None]) -> None:
    """Decode a little for every size of call that the target's engine has, from each of its buffers of states."""
    for rows in target.prepared_rows:
        decoder.start([0] * rows)
        for _ in target.states.alternatives:
            decoder.step()
        forget()
        target.length = 0


def chunks(
    prompt: Sequence[int], rows: int, begin: int = 0, border: int = 0
) -> Iterator[tuple[Sequence[int], int | None]]:
    """Yield the prompt from `begin` in pieces of at most `rows` tokens, each with the token after it (None at the end).

    A piece ends at `border` where it lies inside.
    """
    while begin < len(prompt):
        end = min(begin + rows, len(prompt))
        if begin < border < end:
            end = border
        yield prompt[begin:end], prompt[end] if end < len(prompt) else None
        begin = end
