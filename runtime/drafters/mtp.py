"""The multi-token prediction drafter, on a stage `draft_mtp_<draft tokens>`."""

from __future__ import annotations

from dataclasses import dataclass

from dfc.artifacts import Component
from dfc.runtime.drafters.kind import DrafterKind, Limits, most_draft_tokens
from dfc.runtime.engine import Buffer, Call, Engine, integers
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
        self._length = 0
        self._states = States(engine, batch=1)
        self._lengths = engine.allocate("int64", (1,))
        self._valid = engine.allocate("int64", (1,))
        self._draft_tokens = engine.allocate("int64", (1, draft_tokens))
        self._calls: dict[Buffer, _Bound] = {}

    def reset(self) -> None:
        """Forget the sequence."""
        self._length = 0
        self._states.reset()

    def follow(self, block: Block) -> None:
        """Replay the rows; what the graph drafts after them is not read."""
        self._run(block)

    def draft(self, block: Block) -> list[int]:
        """Replay the rows and return the drafts."""
        self._run(block)
        drafts: list[int] = self._draft_tokens.read()[0].tolist()
        return drafts

    def _run(self, block: Block) -> None:
        assert block.hidden is not None
        if block.hidden not in self._calls:
            self._calls[block.hidden] = self._bind(block.rows, block.hidden)
        bound = self._calls[block.hidden]
        # Rows past `count` are rejected drafts: any id does.
        bound.next_ids.write(integers([(*block.next_ids, *[0] * (block.rows - block.count))]))
        self._lengths.write(integers([self._length]))
        self._valid.write(integers([block.count]))
        bound.call.run()
        self._length += block.count

    def _bind(self, rows: int, hidden: Buffer) -> _Bound:
        next_ids = self._engine.allocate("int64", (1, rows))
        named = {
            "next_ids": next_ids,
            "hidden": hidden,
            "lengths": self._lengths,
            "valid": self._valid,
            "draft_tokens": self._draft_tokens,
        }
        return _Bound(next_ids, self._engine.bind(named | self._states.bindings(0)))


DEFAULT_DRAFT_TOKENS = 3
"""Acceptance falls with every step of the same head, while each step costs the same."""


def _limits(component: Component) -> Limits:
    most = most_draft_tokens(component)
    return Limits(default=min(DEFAULT_DRAFT_TOKENS, most), most=most)


KIND = DrafterKind("mtp", 2, _limits, lambda draft_tokens: f"draft_mtp_{draft_tokens}", MTPDrafter)
