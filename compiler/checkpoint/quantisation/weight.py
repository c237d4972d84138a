"""Quantised weights in the one form that graphs know, whatever format they were published in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dfc.compiler.checkpoint.spec import StorageType, TensorLocation

Array = NDArray[Any]

Kind = Literal["uint4", "uint8", "float8", "float4"]


@dataclass(frozen=True)
class ComputedTensor:
    """A tensor whose bytes the build writes: ``pieces`` yields it along the first axis, read from ``sources``.

    The pieces have the item size and, joined, the number of items that dtype and shape say.
    """

    name: str
    dtype: StorageType
    shape: tuple[int, ...]
    sources: tuple[Path, ...]
    pieces: Callable[[], Iterator[Array]]


Part = TensorLocation | ComputedTensor


@dataclass(frozen=True)
class QuantisedWeight:
    """A matrix [N, K] of a linear layer: ``value * scale``, or ``(value - zero point) * scale`` for integers.

    ``values`` by kind, G groups of B = ``block_columns`` columns:
    - uint4: uint8 [N, G, B / 2], the even column in the low four bits; uint8: uint8 [N, G, B];
    - float8: e4m3 [N, K]; float4: uint8 [N, G, B / 2] of e2m1, the even column in the low four bits.
    ``scales`` [ceil(N / block_rows), ceil(K / block_columns)]; integers and float4 have ``block_rows`` 1 and whole
    groups. ``zero_points`` of integers: uint8 [N, G], for uint4 [N, ceil(G / 2)] packed as the values; without them the
    zero point is half the range. ``tensor_scale`` [1] multiplies all. ``order`` [K] int32: stored column j is column
    ``order[j]`` of the matrix.
    """

    kind: Kind
    shape: tuple[int, int]
    block_rows: int
    block_columns: int
    values: Part
    scales: Part
    zero_points: Part | None = None
    tensor_scale: Part | None = None
    order: Part | None = None

    @property
    def parts(self) -> dict[str, Part]:
        """The tensors there are, by the name of their field."""
        fields = ("values", "scales", "zero_points", "tensor_scale", "order")
        found = {name: getattr(self, name) for name in fields}
        return {name: part for name, part in found.items() if part is not None}

    def with_parts(self, located: Callable[[Part], Part]) -> QuantisedWeight:
        """Return the weight with every part replaced."""
        changes: dict[str, Any] = {name: located(part) for name, part in self.parts.items()}
        return replace(self, **changes)


def matmul_block(group: int) -> int:
    """Return the columns of the groups that products of integers work with: a power of two from 16 to 128 that divides
    `group`, 0 where there is none."""
    return next((block for block in (128, 64, 32, 16) if group % block == 0), 0)


def pack_nibbles(codes: Array) -> Array:
    """Return codes [.., C] below 16 as bytes [.., ceil(C / 2)], the even one in the low four bits."""
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], axis=-1)
    packed: Array = codes[..., ::2] | (codes[..., 1::2] << 4)
    return packed


def unpack_words(words: Array, bits: int) -> Array:
    """Return the codes [.., C * 32 / bits] uint8 of int32 words [.., C], the first in the lowest bits."""
    octets = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    if bits == 8:
        return octets
    return np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)


def read_stored(location: TensorLocation) -> Array:
    """Return a tensor's bytes, mapped, as uint8 [length]."""
    if not location.length:
        return np.zeros(0, np.uint8)
    return np.memmap(location.file, np.uint8, "r", location.offset, (location.length,))
