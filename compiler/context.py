"""How many positions an artifact is for: what the user asks, within what target and drafters have."""

from __future__ import annotations

from collections.abc import Sequence

from dfc.compiler.checkpoint import TargetSpec
from dfc.compiler.errors import BuildError
from dfc.compiler.models.drafter import DrafterBuild

DEFAULT_MAX_CONTEXT = 32_768
"""Caches and rotary tables are sized for the context, so the default stops here for models that could go further."""


def find_max_context(asked: int | None, target: TargetSpec, drafters: Sequence[DrafterBuild]) -> int:
    """Return the most tokens of a sequence.

    Raises:
        BuildError: more positions are asked for than the target or a drafter has.
    """
    limits = [(f"target {target.directory}", target.rope.positions)]
    limits += [(f"drafter {drafter.source}", drafter.positions) for drafter in drafters]
    known = [(name, positions) for name, positions in limits if positions is not None]
    if asked is None:
        return min(DEFAULT_MAX_CONTEXT, *(positions for _, positions in known))
    for name, positions in known:
        if asked > positions:
            raise BuildError(
                f"--max-context {asked} is more than the {positions} positions that the config of the {name} allows;"
                " give at most that"
            )
    return asked
