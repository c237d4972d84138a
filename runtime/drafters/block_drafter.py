"""What DFlash and DFlash2 have in common: a stage that takes in features and drafts a block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfc.artifacts import Component
from dfc.runtime.drafters.kind import DrafterKind, Limits, most_draft_tokens
from dfc.runtime.engine import Buffer, Call, Engine, integers
from dfc.runtime.proposal import Proposal, proposal_buffers
from dfc.runtime.sampling import Sampling, SamplingInputs
from dfc.runtime.states import States
from dfc.runtime.target import Block


@dataclass(frozen=True)
class _Slots:
    """Buffers of a block's size, one set for all calls: the target's call is bound to the drafts it reads."""

    wanted: Buffer
    proposal: Proposal


class BlockDrafter:
    """Appends context for committed rows and drafts a block of 1 + `draft_tokens` rows."""

    def __init__(self, engine: Engine, draft_tokens: int) -> None:
        self._engine = engine
        self.draft_tokens = draft_tokens
        self.length = 0
        self.states = States(engine, batch=1)
        self._scalars = {name: engine.share("int64", (1,)) for name in ("lengths", "valid", "anchor")}
        self._sampling = SamplingInputs(engine)
        self._slots: dict[int, _Slots] = {}
        self._calls: dict[tuple[Buffer, int], Call] = {}

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0
        self.states.reset()

    def rewind(self, length: int) -> None:
        """Forget the rows past `length`: what the caches hold there is never read."""
        self.length = length

    def follow(self, block: Block) -> None:
        """Append context; the graph always drafts, so it is asked for the smallest block."""
        self._run(block, slots=1)

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes so, where the stage draws."""
        self._sampling.shape(sampling)

    def draft(self, block: Block) -> Proposal:
        """Append context and return the drafts."""
        return self._run(block, self.draft_tokens)

    def _run(self, block: Block, slots: int) -> Proposal:
        assert block.features is not None
        slots = self._engine.fit(T=block.rows, S=slots)["S"]
        key = (block.features, slots)
        if key not in self._calls:
            self._calls[key] = self._bind(block.features, slots)
        for name, value in (("lengths", self.length), ("valid", block.count), ("anchor", block.anchor)):
            self._scalars[name].write(integers([value]))
        self.length += block.count
        self._sampling.write(slots, {0: self.length + 1})
        self._calls[key].run(self.length)
        return self._slots[slots].proposal

    def _bind(self, features: Buffer, slots: int) -> Call:
        if slots not in self._slots:
            wanted = self._engine.share("int64", (slots,))
            wanted.write(integers(np.arange(slots)))
            self._slots[slots] = _Slots(wanted, proposal_buffers(self._engine, 1, slots))
        block = self._slots[slots]
        named = self._scalars | {"features": features, "slots": block.wanted, **block.proposal.bindings()}
        named |= self._sampling.buffers(slots)
        return self._engine.bind(named | self.states.bindings(0))


def kind_of_block_drafter(name: str, rank: int) -> DrafterKind:
    """Return the kind on the stage `draft_<name>`; by default a round drafts as much as the stage can."""
    return DrafterKind(name, rank, _limits, lambda component, draft_tokens: f"draft_{name}", BlockDrafter)


def _limits(component: Component) -> Limits:
    most = most_draft_tokens(component)
    return Limits(default=most, most=most)
