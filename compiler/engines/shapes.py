"""Which engines of static shape a stage gets."""

from __future__ import annotations

from collections.abc import Iterator

from dfc.compiler.engines.backend import EngineRequest
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.passes.tensorrt.shapes import PIECE, EngineShape

PROMPT_ROWS = 256
"""Rows of a prompt chunk: products of that many rows keep a GPU's arithmetic busy."""

CONTEXT_STEP = 8
"""Each engine looks at this many times the cache rows of the one before: short sequences do not pay for long ones."""

SMALLEST_CONTEXT = 2048


def contexts(capacity: int) -> list[int]:
    """Return the numbers of cache rows that engines look at, the last one all of them."""
    found = []
    context = SMALLEST_CONTEXT
    while context < capacity:
        found.append(context)
        context *= CONTEXT_STEP
    return [*found, capacity]


def engine_shapes(stage: StageGraph, request: EngineRequest) -> Iterator[EngineShape]:
    """Yield the shapes of a stage's engines: the rows of a round and of a prompt chunk, at every context."""
    symbols = {dimension for tensor in stage.inputs for dimension in tensor.shape if isinstance(dimension, str)}
    # A drafter does not know the others, whose rounds may be longer than its own.
    round_rows = stage.round_rows if stage.component == "target" else request.round_rows
    for rows in (round_rows, PROMPT_ROWS):
        sizes = {"N": 1, "T": rows, "J": round_rows if rows == round_rows else 1, "S": stage.draft_tokens}
        dimensions = {name: size for name, size in sizes.items() if name in symbols}
        for context in contexts(request.capacity):
            yield EngineShape(dimensions, context)


def padded_capacity(rows: int) -> int:
    """Return cache rows for `rows` and a padded prompt chunk behind them, in whole pieces of the attention."""
    return -(-(rows + PROMPT_ROWS) // PIECE) * PIECE
