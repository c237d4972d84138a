"""The decoding loops: draft, verify, accept, commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dfc.runtime.drafters.kind import Drafter
from dfc.runtime.target import AdvancingTarget, Block, VerifyingTarget

PREFILL_ROWS = 256
"""Prompt tokens a call takes: enough for full matrix products, few enough to bound memory."""


@dataclass(frozen=True)
class Round:
    """One step of the target: the token it starts from, the drafts after it, how many hold, and the tokens it adds."""

    anchor: int
    proposed: tuple[int, ...]
    accepted: int
    tokens: tuple[int, ...]


class Decoder(Protocol):
    """One sequence being decoded."""

    def warm_up(self) -> None:
        """Run every call of a round once, so that the first real one finds its memory in place; then forget it."""

    def start(self, prompt: Sequence[int]) -> int:
        """Take in the prompt and return the first new token."""

    def step(self) -> Round:
        """Do one round."""


class PlainDecoder:
    """The target alone: every round adds one token."""

    def __init__(self, target: AdvancingTarget, prefill_rows: int = PREFILL_ROWS) -> None:
        self._target = target
        self._prefill_rows = prefill_rows
        self._anchor = 0

    def warm_up(self) -> None:
        self.start([0])
        for _ in self._target.states.alternatives:
            self.step()
        self._target.reset()

    def start(self, prompt: Sequence[int]) -> int:
        for chunk, _ in chunks(prompt, self._prefill_rows):
            self._anchor = self._target.advance(chunk)
        return self._anchor

    def step(self) -> Round:
        anchor = self._anchor
        self._anchor = self._target.advance([anchor])
        return Round(anchor, (), 0, (self._anchor,))


class SpeculativeDecoder:
    """A drafter proposes, the target judges: every round adds the accepted drafts and one token of the target's own."""

    def __init__(self, target: VerifyingTarget, drafter: Drafter, prefill_rows: int = PREFILL_ROWS) -> None:
        self._target = target
        self._drafter = drafter
        self._prefill_rows = prefill_rows
        self._block: Block | None = None

    def warm_up(self) -> None:
        self.start([0])
        for _ in self._target.states.alternatives:
            self.step()
        self._target.reset()
        self._drafter.reset()
        self._block = None

    def start(self, prompt: Sequence[int]) -> int:
        for chunk, following in chunks(prompt, self._prefill_rows):
            # The last chunk's rows wait: the first round's draft takes them in.
            if self._block is not None:
                self._drafter.follow(self._block)
            self._block = self._target.commit(chunk, following)
        assert self._block is not None
        return self._block.anchor

    def step(self) -> Round:
        assert self._block is not None
        anchor = self._block.anchor
        drafts = self._drafter.draft(self._block)
        proposed, self._block = self._target.verify_drafted(anchor, drafts, self._drafter.draft_tokens)
        return Round(anchor, tuple(proposed), self._block.accepted, self._block.next_ids)


def chunks(prompt: Sequence[int], rows: int) -> Iterator[tuple[Sequence[int], int | None]]:
    """Yield the prompt in pieces of at most `rows` tokens, each with the token after it (None at the end)."""
    for begin in range(0, len(prompt), rows):
        end = begin + rows
        yield prompt[begin:end], prompt[end] if end < len(prompt) else None
