"""The target: takes tokens in, answers with its next token and how many drafts it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfc.runtime.engine import Array, Buffer, Call, Copy, Engine, integers
from dfc.runtime.proposal import CANDIDATES, PROBABILITIES, Proposal, candidate_count, certain
from dfc.runtime.sampling import Sampling, SamplingInputs
from dfc.runtime.states import States


@dataclass(frozen=True)
class Block:
    """The rows of the target's last call that are committed: what a drafter continues from.

    ``next_ids`` is the token after each of the ``count`` rows; ``rows`` >= count is the number of rows in the buffers
    ``hidden`` and ``features`` (None where the artifact has no drafter that reads it).
    """

    rows: int
    count: int
    next_ids: tuple[int, ...]
    anchor: int
    accepted: int
    hidden: Buffer | None
    features: Buffer | None


class AdvancingTarget:
    """The target for plain decoding, on the stage `target_advance` or, to sample, on `target_advance_sampling`."""

    def __init__(self, engine: Engine, sampling: Sampling | None = None) -> None:
        self.length = 0
        self.states = States(engine, batch=1)
        self._engine = engine
        self._lengths, self._valid, self._anchor = (engine.share("int64", (1,)) for _ in range(3))
        # Only engines of static shape are told how many rows count: the others get no more.
        self._padded = any(tensor.name == "valid" for tensor in engine.stage.inputs)
        self._sampling = _sampling_inputs(engine, sampling)
        self._calls: dict[int, tuple[Buffer, tuple[Call, ...]]] = {}

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        """The rows of the calls to run once while loading."""
        return self._engine.prepared_rows

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes from another distribution; the target must have been made to sample."""
        assert self._sampling is not None
        self._sampling.shape(sampling)

    def advance(self, ids: Sequence[int], *, prompt: bool = False) -> int:
        """Commit tokens, of a prompt or of the answer, and return the target's next one.

        Raises:
            RunError: they do not fit into the caches.
        """
        self.states.check_room(self.length + len(ids))
        rows = self._engine.fit(T=len(ids))["T"]
        if rows not in self._calls:
            self._calls[rows] = self._bind(rows)
        input_ids, calls = self._calls[rows]
        input_ids.write(_padded(ids, rows))
        self._lengths.write(integers([self.length]))
        self._valid.write(integers([len(ids)]))
        if self._sampling is not None:
            self._sampling.write(1, {0: self.length + len(ids)}, len(ids) if prompt else 0)
        calls[self.states.current].run(self.length + len(ids))
        self.states.swap()
        self.length += len(ids)
        return int(self._anchor.read()[0])

    def _bind(self, rows: int) -> tuple[Buffer, tuple[Call, ...]]:
        input_ids = self._engine.share("int64", (1, rows))
        named = {"input_ids": input_ids, "lengths": self._lengths, "anchor": self._anchor}
        if self._padded:
            named["valid"] = self._valid
        if self._sampling is not None:
            named |= self._sampling.buffers(1)
        calls = (self._engine.bind(named | self.states.bindings(current)) for current in self.states.alternatives)
        return input_ids, tuple(calls)


@dataclass(frozen=True)
class _VerifyCalls:
    """Calls of one shape and the buffers that only they use."""

    rows: int
    ids: Buffer
    hidden: Buffer | None
    features: Buffer | None
    distribution: dict[str, Buffer]
    calls: tuple[Call, ...]


class VerifyingTarget:
    """The target for speculative decoding, on the stage `target_verify` or, to sample, on `target_verify_sampling`."""

    def __init__(self, engine: Engine, sampling: Sampling | None = None) -> None:
        self.length = 0
        self.states = States(engine, batch=1)
        self._engine = engine
        self._scalars = {
            name: engine.share("int64", (1,)) for name in ("lengths", "forced", "valid", "accepted", "anchor")
        }
        self._sampling = _sampling_inputs(engine, sampling)
        self._widths = {
            tensor.name: tensor.shape[-1] for tensor in engine.stage.outputs if tensor.name in ("hidden", "features")
        }
        self._candidates = candidate_count(engine)
        self._calls: dict[tuple[int, int, Proposal | None], _VerifyCalls] = {}

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        """The rows of the calls to run once while loading."""
        return self._engine.prepared_rows

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes from another distribution; the target must have been made to sample."""
        assert self._sampling is not None
        self._sampling.shape(sampling)

    def commit(self, ids: Sequence[int], following: int | None = None) -> Block:
        """Commit prompt tokens; `following` is the prompt token after them, None at the prompt's end."""
        calls = self._run(ids, forced=len(ids), valid=len(ids), prompt=True)
        anchor = int(self._scalars["anchor"].read()[0])
        self.length += len(ids)
        next_ids = (*ids[1:], anchor if following is None else following)
        return Block(calls.rows, len(ids), next_ids, next_ids[-1], 0, calls.hidden, calls.features)

    def fit_rows(self, rows: int) -> int:
        """Return the rows of a block that hold at least `rows`."""
        return self._engine.fit(T=rows, J=1)["T"]

    def handed_on(self, rows: int) -> dict[str, Buffer]:
        """Return new buffers for `rows` rows of what drafters read: `hidden`, `features`, float32 [1, rows, width]."""
        return {name: self._engine.share("float32", (1, rows, int(width))) for name, width in self._widths.items()}

    def verify(self, anchor: int, draft_tokens: Sequence[int]) -> Block:
        """Commit the anchor and the accepted drafts, which had no alternative."""
        calls = self._run((anchor, *draft_tokens), forced=1, valid=1 + len(draft_tokens))
        return self._judged(calls, draft_tokens)

    def verify_drafted(self, anchor: int, proposal: Proposal, count: int) -> tuple[list[int], Block]:
        """Commit the anchor and what is accepted of the first `count` drafts of a proposal; return those drafts, too.

        The drafts go from the drafter's call to this one without the host between them.
        """
        calls = self._run((anchor,), forced=1, valid=1 + count, proposal=proposal)
        draft_tokens: list[int] = proposal.tokens.read()[0, :count].tolist()
        return draft_tokens, self._judged(calls, draft_tokens)

    def _judged(self, calls: _VerifyCalls, draft_tokens: Sequence[int]) -> Block:
        accepted = int(self._scalars["accepted"].read()[0])
        next_ids = (*draft_tokens[:accepted], int(self._scalars["anchor"].read()[0]))
        self.length += 1 + accepted
        return Block(calls.rows, 1 + accepted, next_ids, next_ids[-1], accepted, calls.hidden, calls.features)

    def _run(
        self, ids: Sequence[int], forced: int, valid: int, proposal: Proposal | None = None, *, prompt: bool = False
    ) -> _VerifyCalls:
        self.states.check_room(self.length + valid)
        sizes = self._engine.fit(T=valid, J=valid - forced + 1)
        shape = (sizes["T"], sizes["J"], proposal)
        if shape not in self._calls:
            self._calls[shape] = self._bind(*shape)
        calls = self._calls[shape]
        calls.ids.write(_padded(ids, calls.rows))
        for name, value in (("lengths", self.length), ("forced", forced), ("valid", valid)):
            self._scalars[name].write(integers([value]))
        if self._sampling is not None:
            self._sampling.write(sizes["J"], {0: self.length + forced}, forced if prompt else 0)
        if calls.distribution:
            given = certain(ids[forced:], sizes["J"], self._candidates or 0)
            for name, values in zip((CANDIDATES, PROBABILITIES), given, strict=True):
                calls.distribution[name].write(values)
        calls.calls[self.states.current].run(self.length + valid)
        self.states.swap()
        return calls

    def _bind(self, rows: int, judged: int, proposal: Proposal | None) -> _VerifyCalls:
        named = dict(self._scalars)
        ids = named["input_ids"] = self._engine.share("int64", (1, rows))
        copies = []
        if proposal is not None:
            named["input_ids"] = self._engine.allocate("int64", (1, rows))
            copies = [Copy(ids, named["input_ids"]), Copy(proposal.tokens, named["input_ids"], 1)]
        distribution = {}
        if self._candidates is not None:
            shape = (1, judged, self._candidates)
            distribution = {
                CANDIDATES: self._engine.share("int64", shape),
                PROBABILITIES: self._engine.share("float32", shape),
            }
            named |= distribution
            if proposal is not None:
                copies += [Copy(source, named[name]) for name, source in proposal.distribution.items()]
        named["judged"] = self._engine.share("int64", (judged,))
        named["judged"].write(integers(np.arange(judged)))
        if self._sampling is not None:
            named |= self._sampling.buffers(judged)
        for name, width in self._widths.items():
            named[name] = self._engine.allocate("float32", (1, rows, int(width)))
        bindings = (named | self.states.bindings(current) for current in self.states.alternatives)
        calls = tuple(self._engine.bind(binding, copies) for binding in bindings)
        written = distribution if proposal is None else {}
        return _VerifyCalls(rows, ids, named.get("hidden"), named.get("features"), written, calls)


def _padded(ids: Sequence[int], rows: int) -> Array:
    return integers([(*ids, *[0] * (rows - len(ids)))])


def _sampling_inputs(engine: Engine, sampling: Sampling | None) -> SamplingInputs | None:
    if sampling is None:
        return None
    inputs = SamplingInputs(engine)
    inputs.shape(sampling)
    return inputs
