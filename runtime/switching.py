"""Decoding with several drafters: a policy chooses one for every round, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dfc.runtime.decode import PREFILL_ROWS, Round, chunks, run_every_size
from dfc.runtime.drafters.kind import Drafter
from dfc.runtime.engine import Array, Buffer
from dfc.runtime.history import History
from dfc.runtime.policy import Choice, Policy
from dfc.runtime.sampling import Sampling
from dfc.runtime.target import Block, VerifyingTarget


@dataclass(frozen=True)
class _Rows:
    """Committed rows on the host: the token after each, and what the target hands on by name, [rows, width]."""

    next_ids: tuple[int, ...]
    values: Mapping[str, Array]

    def cut(self, begin: int, end: int) -> _Rows:
        return _Rows(self.next_ids[begin:end], {name: value[begin:end] for name, value in self.values.items()})


@dataclass
class _Candidate:
    """A drafter, how many rows it has taken in, and the rows kept for it since; `dropped` has gaps in these."""

    drafter: Drafter
    length: int = 0
    kept: list[_Rows] = field(default_factory=list)
    dropped: bool = False

    def drop(self) -> None:
        self.kept.clear()
        self.dropped = True

    def reset(self) -> None:
        self.drafter.reset()
        self.length, self.dropped = 0, False
        self.kept.clear()

    def rewind(self, length: int) -> None:
        if self.length >= length:
            self.drafter.rewind(length)
            self.length, self.dropped = length, False
            self.kept.clear()
        elif self.kept:
            self.kept = [_joined(self.kept).cut(0, length - self.length)]


class SwitchingDecoder:
    """Every round drafts with the drafter that the policy chooses, or not at all.

    A drafter that is not chosen is not called: the rows it misses are kept on the host, and it takes them in with the
    call that drafts when it is chosen next. One that can not be chosen any more gets none.
    """

    def __init__(
        self,
        target: VerifyingTarget,
        drafters: Mapping[str, Drafter],
        policy: Policy,
        prefill_rows: int = PREFILL_ROWS,
    ) -> None:
        self._target = target
        self._candidates = {name: _Candidate(drafter) for name, drafter in drafters.items()}
        self._policy = policy
        self._prefill_rows = prefill_rows
        self._history = History(target.states)
        self._block: Block | None = None
        self._choice: Choice | None = None
        self._gathered: dict[int, dict[str, Buffer]] = {}
        self.reused = 0

    def warm_up(self) -> None:
        run_every_size(self, self._target, self._forget)

    def sample_as(self, sampling: Sampling) -> None:
        self._target.sample_as(sampling)
        for candidate in self._candidates.values():
            candidate.drafter.sample_as(sampling)

    def start(self, prompt: Sequence[int], keep: int = 0) -> int:
        possible = self._policy.possible(len(prompt))
        self._continue_to(prompt, possible)
        for chunk, following in chunks(prompt, self._prefill_rows, self.reused, keep):
            if self._block is not None:
                self._follow(self._block, possible)
            self._block = self._target.commit(chunk, following)
            self._history.add(chunk)
            if self._target.length == keep:
                self._history.keep()
        assert self._block is not None
        return self._block.anchor

    def step(self) -> Round:
        assert self._block is not None
        block, length = self._block, len(self._history.tokens)
        choice = self._choice = self._policy.choose(length, self._choice)
        self._keep(block, choice.drafter, self._policy.possible(length))
        proposed: list[int] = []
        if choice.draft_tokens:
            candidate = self._candidates[choice.drafter]
            candidate.drafter.draft_tokens = choice.draft_tokens
            proposal = candidate.drafter.draft(self._catch_up(candidate, block))
            proposed, self._block = self._target.verify_drafted(block.anchor, proposal, choice.draft_tokens)
        else:
            self._block = self._target.verify(block.anchor, ())
        accepted = self._block.accepted
        self._history.add((block.anchor, *proposed[:accepted]))
        self._policy.observe(choice, accepted)
        return Round(block.anchor, tuple(proposed), accepted, self._block.next_ids, choice.drafter, choice.reason)

    def _keep(self, block: Block, chosen: str, possible: frozenset[str]) -> None:
        """Keep the block's rows for those that may be chosen later: the target's next call overwrites them."""
        rows: _Rows | None = None
        for name, candidate in self._candidates.items():
            if name == chosen or candidate.dropped:
                continue
            if name not in possible:
                candidate.drop()
                continue
            rows = rows or _copied(block)
            candidate.kept.append(rows)

    def _follow(self, block: Block, possible: frozenset[str]) -> None:
        for name, candidate in self._candidates.items():
            if name not in possible:
                candidate.drop()
            elif not candidate.dropped:
                candidate.drafter.follow(self._catch_up(candidate, block))

    def _catch_up(self, candidate: _Candidate, block: Block) -> Block:
        """Return the block that brings the candidate up to date: `block`, with the rows kept for it before."""
        assert not candidate.dropped, "a policy chose a drafter that it had called impossible"
        if not candidate.kept:
            candidate.length += block.count
            return block
        rows = _joined([*candidate.kept, _copied(block)])
        candidate.kept.clear()
        count = len(rows.next_ids)
        candidate.length += count
        last = (count - 1) // self._prefill_rows * self._prefill_rows
        for begin in range(0, last, self._prefill_rows):
            candidate.drafter.follow(self._gather(rows.cut(begin, begin + self._prefill_rows)))
        return self._gather(rows.cut(last, count))

    def _gather(self, rows: _Rows) -> Block:
        count = len(rows.next_ids)
        # Sizes of powers of two: few calls are bound, whatever the number of rows.
        padded, self._gathered = self._buffers(1 << (count - 1).bit_length())
        buffers = self._gathered[padded]
        for name, value in rows.values.items():
            values = np.zeros((1, padded, value.shape[-1]), dtype=value.dtype)
            values[0, :count] = value
            buffers[name].write(values)
        anchor = rows.next_ids[-1]
        return Block(padded, count, rows.next_ids, anchor, 0, buffers.get("hidden"), buffers.get("features"))

    def _buffers(self, wanted: int) -> tuple[int, dict[int, dict[str, Buffer]]]:
        padded = self._target.fit_rows(wanted)
        if padded in self._gathered:
            return padded, self._gathered
        return padded, self._gathered | {padded: self._target.handed_on(padded)}

    def _forget(self) -> None:
        self._history.reset()
        for candidate in self._candidates.values():
            candidate.reset()
        self._policy.reset()
        self._block = self._choice = None

    def _continue_to(self, prompt: Sequence[int], possible: frozenset[str]) -> None:
        committed = self._target.length
        self.reused = self._history.continue_to(prompt)
        if self.reused == committed and self._block is not None:
            following = prompt[self.reused]
            self._block = replace(self._block, next_ids=(*self._block.next_ids[:-1], following), anchor=following)
        elif self.reused < committed:
            self._block = None
            for candidate in self._candidates.values():
                candidate.rewind(self.reused)
        if any(self._candidates[name].dropped for name in possible):
            # Rows that nobody kept can only come from the prompt.
            self._forget()
            self.reused = 0
        if self.reused == 0:
            # Another sequence: what the last one used says nothing about it.
            self._choice = None
            self._policy.reset()
        self._target.length = self.reused


def _copied(block: Block) -> _Rows:
    named = {"hidden": block.hidden, "features": block.features}
    values = {name: buffer.read()[0, : block.count].copy() for name, buffer in named.items() if buffer is not None}
    return _Rows(block.next_ids, values)


def _joined(rows: Sequence[_Rows]) -> _Rows:
    next_ids = tuple(token for piece in rows for token in piece.next_ids)
    return _Rows(next_ids, {name: np.concatenate([piece.values[name] for piece in rows]) for name in rows[0].values})
