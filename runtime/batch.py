"""Several sequences in every call: a row of the batch for each, which goes to the next one when its answer ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dfc.runtime.decode import InFlight, PlainDecoder, Round, SpeculativeDecoder
from dfc.runtime.engine import Array, Buffer, Engine
from dfc.runtime.proposal import proposal_buffers
from dfc.runtime.sampling import LIKELIEST, Sampling, SamplingInputs
from dfc.runtime.states import States

NO_TOKEN = 0
"""What rows without a sequence are given: nobody reads what comes of them."""


@dataclass
class Row:
    """One sequence of the batch: tokens committed, and the tokens after the rows of its last round."""

    length: int
    next_ids: tuple[int, ...]

    @property
    def anchor(self) -> int:
        return self.next_ids[-1]


Rows = Mapping[int, Row]
"""The sequences by their place in the batch."""


class BatchRounds(Protocol):
    """Does one round for all rows of a batch."""

    def admit(self, place: int, sequence: InFlight, sampling: Sampling) -> None:
        """Take over a sequence's states, and draw its tokens so."""

    def step(self, rows: Rows) -> dict[int, Round]:
        """Do a round; the rows go on from it."""


class Batch:
    """Decodes sequences side by side. Each prompt is taken in alone, with its first round, by `single`."""

    def __init__(self, single: PlainDecoder | SpeculativeDecoder, rounds: BatchRounds) -> None:
        self._single = single
        self._rounds = rounds
        self._rows: dict[int, Row] = {}

    def start(self, prompt: Sequence[int], sampling: Sampling | None) -> int:
        """Take in a prompt and return the first new token; `join` or another `start` comes next."""
        if sampling is not None:
            self._single.sample_as(sampling)
        return self._single.start(prompt)

    def join(self, place: int, sampling: Sampling | None) -> Round:
        """Do the first round of the sequence that `start` took in, and let it go on in this place of the batch."""
        first = self._single.step()
        sequence = self._single.in_flight()
        self._rounds.admit(place, sequence, sampling or LIKELIEST)
        self._rows[place] = Row(sequence.length, sequence.next_ids)
        return first

    def leave(self, place: int) -> None:
        """End the sequence in this place."""
        del self._rows[place]

    @property
    def places(self) -> Collection[int]:
        """The places with a sequence."""
        return tuple(self._rows)

    def step(self) -> dict[int, Round]:
        """Do one round for every sequence, by place."""
        return self._rounds.step(self._rows)


class AdvancingBatch:
    """Plain decoding: a token a row and round."""

    def __init__(self, engine: Engine, size: int, sampled: bool) -> None:
        self._states = States(engine, size)
        self._size = size
        self._ids, self._lengths, self._anchor = (
            engine.share("int64", shape) for shape in ((size, 1), (size,), (size,))
        )
        self._sampling = SamplingInputs(engine, size) if sampled else None
        named = {"input_ids": self._ids, "lengths": self._lengths, "anchor": self._anchor}
        named |= {} if self._sampling is None else self._sampling.buffers(1)
        self._calls = [engine.bind(named | self._states.bindings(current)) for current in self._states.alternatives]

    def admit(self, place: int, sequence: InFlight, sampling: Sampling) -> None:
        """Take over a sequence's states."""
        self._states.copy_row(place, sequence.states)
        if self._sampling is not None:
            self._sampling.shape(sampling, place)

    def step(self, rows: Rows) -> dict[int, Round]:
        """Commit every row's last token and return the next ones."""
        self._ids.write(_column(rows, self._size, lambda row: row.anchor)[:, np.newaxis])
        self._lengths.write(_column(rows, self._size, lambda row: row.length))
        if self._sampling is not None:
            self._sampling.write(1, _chosen_positions(rows))
        self._calls[self._states.current].run(max(row.length for row in rows.values()) + 1)
        self._states.swap()
        anchors = self._anchor.read().tolist()
        finished = {}
        for place, row in rows.items():
            finished[place] = Round(row.anchor, (), 0, (anchors[place],))
            row.length += 1
            row.next_ids = (anchors[place],)
        return finished


class DraftingBatch:
    """A drafter's stage for every row: takes in what the target's last round committed, and drafts."""

    def __init__(self, engine: Engine, draft_tokens: int, size: int) -> None:
        self.draft_tokens = draft_tokens
        self._engine = engine
        self._size = size
        self._states = States(engine, size)
        self._taken = [0] * size
        """Rows of each sequence that the drafter has taken in."""
        self._numbers = {name: engine.share("int64", (size,)) for name in ("lengths", "valid", "anchor")}
        self._next_ids = engine.share("int64", (size, 1 + draft_tokens))
        slots = engine.share("int64", (draft_tokens,))
        slots.write(np.arange(draft_tokens))
        (drafts,) = (tensor for tensor in engine.stage.outputs if tensor.name == "draft_tokens")
        drafted = drafts.shape[-1] if isinstance(drafts.shape[-1], int) else draft_tokens
        self._drafted = drafted
        self.proposal = proposal_buffers(engine, size, drafted)
        self._sampling = SamplingInputs(engine, size)
        self._named = {**self._numbers, "next_ids": self._next_ids, "slots": slots}
        self._named |= self.proposal.bindings() | self._sampling.buffers(drafted)

    def bind(self, given: Mapping[str, Buffer]) -> None:
        """Bind to the target's `hidden` and `features`."""
        wanted = {tensor.name for tensor in (*self._engine.stage.inputs, *self._engine.stage.outputs)}
        named = {name: buffer for name, buffer in {**self._named, **given}.items() if name in wanted}
        self._call = self._engine.bind(named | self._states.bindings(0))

    def admit(self, place: int, sequence: InFlight, sampling: Sampling) -> None:
        """Take over a sequence's states."""
        assert sequence.drafter is not None
        self._sampling.shape(sampling, place)
        self._states.copy_row(place, sequence.drafter.states)
        self._taken[place] = sequence.drafter.length

    def draft(self, rows: Rows) -> Array:
        """Fill the proposal and return its first draft tokens [size, draft_tokens]."""
        next_ids = np.zeros((self._size, 1 + self.draft_tokens), np.int64)
        for place, row in rows.items():
            next_ids[place, : len(row.next_ids)] = row.next_ids
        self._next_ids.write(next_ids)
        taken = np.zeros(self._size, np.int64)
        for place in rows:
            taken[place] = self._taken[place]
        self._numbers["lengths"].write(taken)
        self._numbers["valid"].write(_column(rows, self._size, lambda row: len(row.next_ids), empty=1))
        self._numbers["anchor"].write(_column(rows, self._size, lambda row: row.anchor))
        for place, row in rows.items():
            self._taken[place] += len(row.next_ids)
        self._sampling.write(self._drafted, _chosen_positions(rows))
        self._call.run(max(self._taken[place] for place in rows) + self.draft_tokens)
        return self.proposal.tokens.read()[:, : self.draft_tokens]


class VerifyingBatch:
    """Speculative decoding: every row's drafts are judged in one call."""

    def __init__(self, engine: Engine, draft: DraftingBatch, size: int, sampled: bool) -> None:
        self._draft = draft
        self._size = size
        self._states = States(engine, size)
        width = 1 + draft.draft_tokens
        self._ids = engine.share("int64", (size, width))
        names = ("lengths", "forced", "valid", "accepted", "anchor")
        self._numbers = {name: engine.share("int64", (size,)) for name in names}
        self._numbers["forced"].write(np.ones(size, np.int64))
        judged = engine.share("int64", (width,))
        judged.write(np.arange(width))
        self._sampling = SamplingInputs(engine, size) if sampled else None
        self._handed_on = {
            tensor.name: engine.allocate("float32", (size, width, int(tensor.shape[-1])))
            for tensor in engine.stage.outputs
            if tensor.name in ("hidden", "features")
        }
        draft.bind(self._handed_on)
        named = {"input_ids": self._ids, "judged": judged, **self._numbers, **self._handed_on}
        named |= {} if self._sampling is None else self._sampling.buffers(width)
        self._distribution = {
            tensor.name: engine.share(tensor.dtype, (size, width, int(tensor.shape[-1])))
            for tensor in engine.stage.inputs
            if tensor.name in draft.proposal.distribution
        }
        named |= self._distribution
        self._calls = [engine.bind(named | self._states.bindings(current)) for current in self._states.alternatives]

    def admit(self, place: int, sequence: InFlight, sampling: Sampling) -> None:
        """Take over a sequence's states, its drafter's, and the rows that the drafter has not taken in."""
        assert sequence.block is not None
        self._states.copy_row(place, sequence.states)
        if self._sampling is not None:
            self._sampling.shape(sampling, place)
        self._draft.admit(place, sequence, sampling)
        for name, buffer in (("hidden", sequence.block.hidden), ("features", sequence.block.features)):
            if buffer is not None:
                values = self._handed_on[name].read()
                values[place, : sequence.block.rows] = buffer.read()[0]
                self._handed_on[name].write(values)

    def step(self, rows: Rows) -> dict[int, Round]:
        """Draft, judge and commit."""
        drafts = self._draft.draft(rows)
        for name, buffer in self._distribution.items():
            values = buffer.read()
            values[:, :-1] = self._draft.proposal.distribution[name].read()[:, : self._draft.draft_tokens]
            buffer.write(values)
        anchors = _column(rows, self._size, lambda row: row.anchor)
        self._ids.write(np.concatenate([anchors[:, np.newaxis], drafts], axis=1))
        self._numbers["lengths"].write(_column(rows, self._size, lambda row: row.length))
        self._numbers["valid"].write(_column(rows, self._size, lambda row: 1 + self._draft.draft_tokens, empty=1))
        if self._sampling is not None:
            self._sampling.write(1 + self._draft.draft_tokens, _chosen_positions(rows))
        end = max(row.length for row in rows.values()) + 1 + self._draft.draft_tokens
        self._calls[self._states.current].run(end)
        self._states.swap()
        accepted, chosen = (self._numbers[name].read().tolist() for name in ("accepted", "anchor"))
        finished = {}
        for place, row in rows.items():
            proposed = tuple(drafts[place].tolist())
            next_ids = (*proposed[: accepted[place]], chosen[place])
            finished[place] = Round(row.anchor, proposed, accepted[place], next_ids)
            row.length += 1 + accepted[place]
            row.next_ids = next_ids
        return finished


def _chosen_positions(rows: Rows) -> dict[int, int]:
    """Return where the tokens stand that come after the anchors."""
    return {place: row.length + 1 for place, row in rows.items()}


def _column(rows: Rows, size: int, value: Callable[[Row], int], empty: int = NO_TOKEN) -> Array:
    """Return a number [size] of every row, `empty` where there is no sequence."""
    column = np.full(size, empty, np.int64)
    for place, row in rows.items():
        column[place] = value(row)
    return column
