"""The multi-token prediction drafter, on a stage `draft_mtp_<draft tokens>`."""

from __future__ import annotations

from dataclasses import dataclass

from dfc.artifacts import Component
from dfc.runtime.drafters.kind import DrafterKind, Limits, most_draft_tokens
from dfc.runtime.engine import Buffer, Call, Engine, integers
from dfc.runtime.proposal import Proposal, proposal_buffers
from dfc.runtime.sampling import Sampling, SamplingInputs
from dfc.runtime.states import States
from dfc.runtime.target import Block


@dataclass(frozen=True)
class _Bound:
    next_ids: Buffer
    call: Call


class MTPDrafter:
    """Replays committed rows with the target's hidden states and drafts from the last one."""

    def __init__(self, engine: Engine, draft_tokens: int) -> None:
        self._engine = engine
        self.length = 0
        self.states = States(engine, batch=1)
        self.draft_tokens = draft_tokens
        self._lengths, self._valid = (engine.share("int64", (1,)) for _ in range(2))
        # The stage may draft more: its first ones are those that a shorter stage would draft.
        self._drafts_of_stage = _last_dimension(engine, "draft_tokens")
        self._proposal = proposal_buffers(engine, 1, self._drafts_of_stage)
        self._sampling = SamplingInputs(engine)
        self._calls: dict[Buffer, _Bound] = {}

    def reset(self) -> None:
        """Forget the sequence."""
        self.length = 0
        self.states.reset()

    def rewind(self, length: int) -> None:
        """Forget the rows past `length`: what the caches hold there is never read."""
        self.length = length

    def follow(self, block: Block) -> None:
        """Replay the rows; what the graph drafts after them is not read."""
        self._run(block)

    def sample_as(self, sampling: Sampling) -> None:
        """Draw what comes so, where the stage draws."""
        self._sampling.shape(sampling)

    def draft(self, block: Block) -> Proposal:
        """Replay the rows and return the drafts."""
        self._run(block)
        return self._proposal

    def _run(self, block: Block) -> None:
        assert block.hidden is not None
        if block.hidden not in self._calls:
            self._calls[block.hidden] = self._bind(block.rows, block.hidden)
        bound = self._calls[block.hidden]
        # Rows past `count` are rejected drafts: any id does.
        bound.next_ids.write(integers([(*block.next_ids, *[0] * (block.rows - block.count))]))
        self._lengths.write(integers([self.length]))
        self._valid.write(integers([block.count]))
        self.length += block.count
        self._sampling.write(self._drafts_of_stage, {0: self.length + 1})
        bound.call.run(self.length + self._drafts_of_stage)

    def _bind(self, rows: int, hidden: Buffer) -> _Bound:
        next_ids = self._engine.share("int64", (1, rows))
        named = {
            "next_ids": next_ids,
            "hidden": hidden,
            "lengths": self._lengths,
            "valid": self._valid,
            **self._proposal.bindings(),
            **self._sampling.buffers(self._drafts_of_stage),
        }
        return _Bound(next_ids, self._engine.bind(named | self.states.bindings(0)))


DEFAULT_DRAFT_TOKENS = 3
"""Acceptance falls with every step of the same head, while each step costs the same."""


def _limits(component: Component) -> Limits:
    most = most_draft_tokens(component)
    return Limits(default=min(DEFAULT_DRAFT_TOKENS, most), most=most)


def _stage(component: Component, draft_tokens: int) -> str:
    """Return the shortest stage that drafts enough; an artifact of static engines has the longest only."""
    built = component.parameters.get("stages")
    lengths = built if isinstance(built, tuple) else (draft_tokens,)
    return f"draft_mtp_{min((length for length in lengths if length >= draft_tokens), default=draft_tokens)}"


def _last_dimension(engine: Engine, name: str) -> int:
    (tensor,) = (tensor for tensor in engine.stage.outputs if tensor.name == name)
    return int(tensor.shape[-1])


KIND = DrafterKind("mtp", 3, _limits, _stage, MTPDrafter)
