"""The DFlash drafter, on the stage `draft_dflash`."""

from __future__ import annotations

from dfc.runtime.drafters.block_drafter import kind_of_block_drafter

KIND = kind_of_block_drafter("dflash", 2)
