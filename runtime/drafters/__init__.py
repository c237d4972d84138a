"""The drafters: each continues from the target's last committed rows, one file each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dfc.runtime.drafters.dflash2 import DFlash2Drafter
from dfc.runtime.drafters.mtp import MTPDrafter
from dfc.runtime.engine import Engine
from dfc.runtime.plan import Drafter as DrafterName
from dfc.runtime.target import Block


class Drafter(Protocol):
    """One sequence's drafter."""

    def reset(self) -> None:
        """Forget the sequence."""

    def follow(self, block: Block) -> None:
        """Take in committed rows without drafting: a prompt chunk that is not the last."""

    def draft(self, block: Block) -> list[int]:
        """Take in committed rows and return the tokens proposed after the block's anchor."""


DRAFTERS: dict[DrafterName, Callable[[Engine, int], Drafter]] = {"dflash2": DFlash2Drafter, "mtp": MTPDrafter}
"""By name: how to make one from its engine and the number of draft tokens."""
