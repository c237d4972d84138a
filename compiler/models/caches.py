"""Key and value caches of one attention layer as graph inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import onnx_ir as ir

from dfc.compiler.checkpoint.spec import AttentionSpec
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.models.layers import FLOAT


class Caches(NamedTuple):
    """Keys and values of one layer, each [N, kv_heads, C, head_dim]."""

    keys: ir.Value
    values: ir.Value


def cache_shape(attention: AttentionSpec, capacity: int) -> tuple[str | int, ...]:
    """Return the shape of one cache that holds `capacity` rows a sequence."""
    return ("N", attention.num_kv_heads, capacity, attention.head_dim)


def cache_inputs(stage: StageBuilder, attention: AttentionSpec, capacity: int, prefix: str) -> Caches:
    """Declare the key and value caches of one layer."""
    shape = cache_shape(attention, capacity)
    return Caches(*(stage.input(f"{prefix}.{name}_cache", FLOAT, shape, role="cache") for name in ("key", "value")))


def cache_outputs(
    stage: StageBuilder, attention: AttentionSpec, capacity: int, before: Iterable[Caches], after: Iterable[Caches]
) -> None:
    """Declare the updated caches as outputs in the buffers of the old ones."""
    shape = cache_shape(attention, capacity)
    for old_pair, new_pair in zip(before, after, strict=True):
        for old, new in zip(old_pair, new_pair, strict=True):
            assert old.name is not None
            stage.output(f"next.{old.name}", new, FLOAT, shape, role="cache", alias=old.name)
