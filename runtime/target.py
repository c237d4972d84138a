"""The target: takes tokens in, answers with its next token and how many drafts it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfc.runtime.engine import Array, Buffer, Call, Engine, integers
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
    """The target for plain decoding, on the stage `target_advance`."""

    def __init__(self, engine: Engine) -> None:
        self.length = 0
        self.states = States(engine, batch=1)
        self._engine = engine
        self._lengths = engine.allocate("int64", (1,))
        self._anchor = engine.allocate("int64", (1,))
        self._calls: dict[int, tuple[Buffer, tuple[Call, ...]]] = {}

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0
        self.states.reset()

    def advance(self, ids: Sequence[int]) -> int:
        """Commit tokens and return the target's next one."""
        if len(ids) not in self._calls:
            self._calls[len(ids)] = self._bind(len(ids))
        input_ids, calls = self._calls[len(ids)]
        input_ids.write(integers([ids]))
        self._lengths.write(integers([self.length]))
        calls[self.states.current].run()
        self.states.swap()
        self.length += len(ids)
        return int(self._anchor.read()[0])

    def _bind(self, rows: int) -> tuple[Buffer, tuple[Call, ...]]:
        input_ids = self._engine.allocate("int64", (1, rows))
        named = {"input_ids": input_ids, "lengths": self._lengths, "anchor": self._anchor}
        calls = (self._engine.bind(named | self.states.bindings(current)) for current in self.states.alternatives)
        return input_ids, tuple(calls)


@dataclass(frozen=True)
class _VerifyCalls:
    """Calls of one shape and the buffers that only they use."""

    input_ids: Buffer
    tokens: Buffer
    hidden: Buffer | None
    features: Buffer | None
    calls: tuple[Call, ...]


class VerifyingTarget:
    """The target for speculative decoding, on the stage `target_verify`."""

    def __init__(self, engine: Engine) -> None:
        self.length = 0
        self.states = States(engine, batch=1)
        self._engine = engine
        self._scalars = {
            name: engine.allocate("int64", (1,)) for name in ("lengths", "forced", "valid", "accepted", "anchor")
        }
        self._widths = {
            tensor.name: tensor.shape[-1] for tensor in engine.stage.outputs if tensor.name in ("hidden", "features")
        }
        self._calls: dict[tuple[int, int], _VerifyCalls] = {}

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0
        self.states.reset()

    def commit(self, ids: Sequence[int], following: int | None = None) -> Block:
        """Commit prompt tokens; `following` is the prompt token after them, None at the prompt's end."""
        calls = self._run(ids, forced=len(ids))
        anchor = int(self._scalars["anchor"].read()[0])
        self.length += len(ids)
        next_ids = (*ids[1:], anchor if following is None else following)
        return Block(len(ids), len(ids), next_ids, next_ids[-1], 0, calls.hidden, calls.features)

    def verify(self, anchor: int, draft_tokens: Sequence[int]) -> Block:
        """Commit the anchor and the accepted drafts."""
        calls = self._run((anchor, *draft_tokens), forced=1)
        accepted = int(self._scalars["accepted"].read()[0])
        next_ids = (*draft_tokens[:accepted], int(self._scalars["anchor"].read()[0]))
        self.length += 1 + accepted
        rows = 1 + len(draft_tokens)
        return Block(rows, 1 + accepted, next_ids, next_ids[-1], accepted, calls.hidden, calls.features)

    def _run(self, ids: Sequence[int], forced: int) -> _VerifyCalls:
        shape = (len(ids), len(ids) - forced + 1)
        if shape not in self._calls:
            self._calls[shape] = self._bind(*shape)
        calls = self._calls[shape]
        calls.input_ids.write(integers([ids]))
        for name, value in (("lengths", self.length), ("forced", forced), ("valid", len(ids))):
            self._scalars[name].write(integers([value]))
        calls.calls[self.states.current].run()
        self.states.swap()
        return calls

    def _bind(self, rows: int, judged: int) -> _VerifyCalls:
        named = dict(self._scalars)
        named["input_ids"] = self._engine.allocate("int64", (1, rows))
        named["tokens"] = self._engine.allocate("int64", (1, judged))
        named["judged"] = self._filled(np.arange(judged))
        for name, width in self._widths.items():
            named[name] = self._engine.allocate("float32", (1, rows, int(width)))
        calls = (self._engine.bind(named | self.states.bindings(current)) for current in self.states.alternatives)
        hidden, features = named.get("hidden"), named.get("features")
        return _VerifyCalls(named["input_ids"], named["tokens"], hidden, features, tuple(calls))

    def _filled(self, values: Array) -> Buffer:
        buffer = self._engine.allocate("int64", values.shape)
        buffer.write(integers(values))
        return buffer
