"""Integer weights from codes, scales and zero points: what formats of integers have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dfc.compiler.checkpoint.quantisation.module import Module
from dfc.compiler.checkpoint.quantisation.weight import (
    Array,
    ComputedTensor,
    Part,
    QuantisedWeight,
    matmul_block,
    pack_nibbles,
)
from dfc.compiler.checkpoint.spec import StorageType

Read = Callable[[], Array]
"""Reads a tensor from the checkpoint when the build writes it."""


@dataclass(frozen=True)
class StoredIntegers:
    """How a format stores an integer matrix [N, K]; every tensor is read only when it is written.

    ``codes`` [N, K] uint8 (or ``values``: the tensor in the form of `QuantisedWeight` already), ``scales`` [N, G] as
    stored items, with ``stored_scales`` where they lie so in the checkpoint, ``zero_points`` [N, G] uint8,
    ``groups`` [K] int32: the group of each column where it is not the
    column's number over ``group_size``.
    """

    bits: int
    group_size: int
    scale_type: StorageType
    scales: Read
    stored_scales: Part | None = None
    codes: Read | None = None
    values: Part | None = None
    zero_points: Read | None = None
    groups: Read | None = None


def integer_weight(module: Module, stored: StoredIntegers, sources: tuple[Path, ...]) -> QuantisedWeight:
    """Return the weight of a layer.

    Raises:
        CheckpointError: no groups that products can work with fit the matrix.
    """
    rows, columns = module.shape
    group = stored.group_size
    block = matmul_block(group)
    if columns % group or not block:
        raise module.error(f"has groups of {group} in {columns} columns; whole groups of a multiple of 16 can be built")
    blocks, repeats = columns // block, group // block

    def values() -> Iterator[Array]:
        assert stored.codes is not None
        codes = stored.codes()
        if stored.groups is not None:
            codes = codes[:, column_order(module, stored.groups(), group)]
        yield pack_nibbles(codes) if stored.bits == 4 else codes

    def scales() -> Iterator[Array]:
        yield np.repeat(stored.scales(), repeats, axis=1)

    def zero_points() -> Iterator[Array]:
        assert stored.zero_points is not None
        points = np.repeat(stored.zero_points(), repeats, axis=1)
        yield pack_nibbles(points) if stored.bits == 4 else points

    def order() -> Iterator[Array]:
        assert stored.groups is not None
        yield column_order(module, stored.groups(), group).astype("<i4")

    def part(suffix: str, dtype: StorageType, shape: tuple[int, ...], pieces: Callable[[], Iterator[Array]]) -> Part:
        return ComputedTensor(f"{module.name}.weight_{suffix}", dtype, shape, sources, pieces)

    width = block * stored.bits // 8
    packed_points = -(-blocks * stored.bits // 8)
    has_points, has_order = stored.zero_points is not None, stored.groups is not None
    return QuantisedWeight(
        kind="uint4" if stored.bits == 4 else "uint8",
        shape=module.shape,
        block_rows=1,
        block_columns=block,
        values=stored.values or part("values", "uint8", (rows, blocks, width), values),
        scales=stored.stored_scales
        if stored.stored_scales and repeats == 1
        else part("scales", stored.scale_type, (rows, blocks), scales),
        zero_points=part("zero_points", "uint8", (rows, packed_points), zero_points) if has_points else None,
        order=part("order", "int32", (columns,), order) if has_order else None,
    )


def column_order(module: Module, groups: Array, group_size: int) -> Array:
    """Return the columns group by group [K].

    Raises:
        CheckpointError: a group does not have that many columns.
    """
    expected = np.arange(groups.size) // group_size
    order = np.argsort(groups, kind="stable")
    if not np.array_equal(groups[order], expected):
        raise module.error(f"names groups for its columns that are not of {group_size} columns each")
    return order
