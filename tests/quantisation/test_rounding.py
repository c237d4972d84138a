"""Rounding to integers, against float64."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dfc.compiler.checkpoint import CheckpointError, TensorLocation
from dfc.compiler.checkpoint.quantisation.rounding import Rounding, bfloat16_to_float32, round_weight
from dfc.compiler.checkpoint.quantisation.weight import Array, ComputedTensor, Part
from dfc.compiler.checkpoint.spec import StorageType

NUMBERS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([16, 32])),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)

ROUNDED_ARITHMETIC = 1 + 1e-5
"""Quotients are in float32: a number in the middle between two codes may take either."""


@given(NUMBERS, st.sampled_from([4, 8]))
def test_no_number_is_further_from_itself_than_half_a_scale(groups: Array, bits: int) -> None:
    rounding = Rounding(bits, groups.shape[-1])
    stored = rounding.scales(groups)
    codes = rounding.codes(groups, stored)
    scales = bfloat16_to_float32(stored).astype(np.float64)[..., None]
    half = 2 ** (bits - 1)
    assert codes.max() < 2**bits
    error = np.abs((codes.astype(np.float64) - half) * scales - groups.astype(np.float64))
    assert (error <= scales / 2 * ROUNDED_ARITHMETIC).all()


@given(NUMBERS, st.sampled_from([4, 8]))
def test_a_scale_is_the_smallest_that_lets_nothing_clip(groups: Array, bits: int) -> None:
    stored = Rounding(bits, groups.shape[-1]).scales(groups)
    wide = groups.astype(np.float64)
    needed = np.maximum(wide.max(-1) / (2 ** (bits - 1) - 1), -wide.min(-1) / 2 ** (bits - 1))
    scales, below = (bfloat16_to_float32(bits_of).astype(np.float64) for bits_of in (stored, stored - np.uint16(1)))
    assert (scales * ROUNDED_ARITHMETIC >= needed).all()
    least = float(np.finfo(np.float32).tiny)
    assert ((below < needed * ROUNDED_ARITHMETIC) | (scales <= least)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("bits", [4, 8])
def test_every_stored_type_is_read(tmp_path: Path, bits: int, dtype: StorageType) -> None:
    matrix = torch.randn(48, 64, generator=torch.Generator().manual_seed(1)).to(getattr(torch, dtype))
    weight = round_weight(store(tmp_path / "weights", matrix, dtype), Rounding(bits, 32))
    values, scales = (np.concatenate(list(pieces(part))) for part in (weight.values, weight.scales))
    assert values.shape == weight.values.shape
    assert scales.shape == weight.scales.shape
    codes = values if bits == 8 else np.stack([values & 15, values >> 4], axis=-1).reshape(48, 2, 32)
    steps = bfloat16_to_float32(scales).astype(np.float64)[..., None]
    back = ((codes.astype(np.float64) - 2 ** (bits - 1)) * steps).reshape(48, 64)
    bound = np.repeat(steps[..., 0], 32, axis=1) / 2 * ROUNDED_ARITHMETIC
    assert (np.abs(back - matrix.double().numpy()) <= bound).all()


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    peaks = []
    for rows in (6_000, 24_000):
        file = tmp_path / str(rows)
        with file.open("wb") as stream:
            stream.truncate(rows * 1024 * 2)
        location = TensorLocation("layer.weight", file, 0, rows * 1024 * 2, "bfloat16", (rows, 1024))
        values = round_weight(location, Rounding(4, 32)).values
        tracemalloc.start()
        for _ in pieces(values):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_named(tmp_path: Path, number: float) -> None:
    matrix = torch.zeros(4, 32)
    matrix[2, 3] = number
    weight = round_weight(store(tmp_path / "weights", matrix, "float32"), Rounding(8, 32))
    with pytest.raises(CheckpointError, match=r"layer.weight holds a number that is not finite.*--keep"):
        list(pieces(weight.values))


def store(file: Path, matrix: torch.Tensor, dtype: StorageType) -> TensorLocation:
    data = matrix.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    file.write_bytes(data)
    return TensorLocation("layer.weight", file, 0, len(data), dtype, tuple(matrix.shape))


def pieces(part: Part) -> Iterator[Array]:
    assert isinstance(part, ComputedTensor)
    return part.pieces()
