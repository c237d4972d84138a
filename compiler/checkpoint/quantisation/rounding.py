"""Plain weights rounded to integers with a scale for every group of columns, a few rows at a time.

A group's scale is the smallest bfloat16 that lets none of its numbers clip: codes use the whole range, from -8 to 7 for
four bits, so every number ends at most half a scale from itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.quantisation.module import read_floats
from dfc.compiler.checkpoint.quantisation.weight import Array, ComputedTensor, Part, QuantisedWeight, pack_nibbles
from dfc.compiler.checkpoint.spec import StorageType, TensorLocation

GROUP_SIZES = (16, 32, 64, 128)
"""Columns of a group that products of integers work with."""

_CHUNK = 1 << 22
"""Numbers of a weight that are in memory at a time."""

_SMALLEST = np.float32(np.finfo(np.float32).tiny)
"""Scale of a group of zeros: what is below it would lose bits of its own."""


@dataclass(frozen=True)
class Rounding:
    """Integers of ``bits`` (4 or 8), one scale for each ``group_size`` columns of a row."""

    bits: int
    group_size: int

    def scales(self, groups: Array) -> Array:
        """Return the scales [.., G], as bfloat16's bits in uint16, of groups [.., G, B] float32."""
        half = 1 << (self.bits - 1)
        above, below = groups.max(-1) / np.float32(half - 1), groups.min(-1) / np.float32(-half)
        scales = np.maximum(np.maximum(above, below), _SMALLEST)
        # Up to the next bfloat16: a scale that is rounded down would let the largest number clip.
        stored: Array = ((scales.view(np.uint32) + np.uint32(0xFFFF)) >> 16).astype("<u2")
        return stored

    def codes(self, groups: Array, scales: Array) -> Array:
        """Return the integers plus half their range [.., G, B] uint8, of groups and their scales."""
        half = 1 << (self.bits - 1)
        codes = np.rint(groups / bfloat16_to_float32(scales)[..., None])
        return (np.clip(codes, -half, half - 1) + half).astype(np.uint8)


def round_weight(location: TensorLocation, rounding: Rounding) -> QuantisedWeight:
    """Return a matrix [N, K] as integers, computed when the build writes it; K is a multiple of the group size.

    Raises:
        CheckpointError: when it is written, and holds a number that is not finite.
    """
    rows, columns = location.shape
    count = columns // rounding.group_size
    module = location.name.removesuffix(".weight")

    def values() -> Iterator[Array]:
        for groups in _groups(location, rounding.group_size):
            codes = rounding.codes(groups, rounding.scales(groups))
            yield pack_nibbles(codes) if rounding.bits == 4 else codes

    def scales() -> Iterator[Array]:
        return (rounding.scales(groups) for groups in _groups(location, rounding.group_size))

    def part(suffix: str, dtype: StorageType, width: tuple[int, ...], pieces: Callable[[], Iterator[Array]]) -> Part:
        return ComputedTensor(f"{module}.weight_{suffix}", dtype, (rows, count, *width), (location.file,), pieces)

    return QuantisedWeight(
        kind="uint4" if rounding.bits == 4 else "uint8",
        shape=(rows, columns),
        block_rows=1,
        block_columns=rounding.group_size,
        values=part("values", "uint8", (rounding.group_size * rounding.bits // 8,), values),
        scales=part("scales", "bfloat16", (), scales),
    )


def bfloat16_to_float32(bits: Array) -> Array:
    """Return numbers in float32, of their bits in uint16."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _groups(location: TensorLocation, group_size: int) -> Iterator[Array]:
    """Yield a matrix's numbers in float32, some rows at a time [R, G, B]."""
    rows, columns = location.shape
    stored = read_floats(location)
    step = max(1, _CHUNK // columns)
    for start in range(0, rows, step):
        part = stored[start : start + step]
        if location.dtype == "bfloat16":
            numbers = bfloat16_to_float32(part)
        else:
            numbers = part.view("<f2" if location.dtype == "float16" else "<f4").astype(np.float32)
        if not np.isfinite(numbers).all():
            raise CheckpointError(
                f"{location.file}: tensor {location.name} holds a number that is not finite, so it cannot be rounded;"
                " --keep leaves it as it is"
            )
        yield numbers.reshape(len(part), -1, group_size)
