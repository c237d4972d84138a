"""Launches: every element has its thread, and what a kernel cannot serve is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.kernel import GeometryError
from dfc.plugins.selector.launch import SelectorGeometry
from tests.plugins.geometries import CHECKPOINTS, convolutions, selectors


@dataclass(frozen=True)
class Symbol:
    """A dimension as TensorRT gives it: an expression with the symbol on the left, evaluated later."""

    text: str

    def __add__(self, other: int) -> Self:
        return type(self)(f"({self.text} + {other})")

    def __mul__(self, other: Any) -> Self:
        return type(self)(f"({self.text} * {other.text if isinstance(other, Symbol) else other})")

    def __floordiv__(self, other: int) -> Self:
        return type(self)(f"({self.text} // {other})")


def evaluate(symbol: Symbol, **values: int) -> int:
    result: int = eval(symbol.text, {}, values)
    return result


@given(
    groups=st.integers(1, 40),
    group_size=st.integers(1, 64),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    batch=st.integers(1, 40),
    block=st.integers(1, 32),
)
def test_convolution_threads_cover_every_element(
    groups: int, group_size: int, dtype: str, batch: int, block: int
) -> None:
    width = groups * group_size
    geometry = GroupedConvGeometry(width, 2, group_size, 0, dtype, dtype, dtype)
    defines = dict(geometry.kernel().defines)
    vector, lanes, row_threads = (int(defines[name]) for name in ("VECTOR", "LANES", "ROW_THREADS"))
    launch = geometry.launch(batch, block)
    assert width % vector == 0
    assert launch.threads == lanes * row_threads
    assert launch.threads % 32 == 0
    channel_tiles = -(-(width // vector) // lanes)
    row_tiles, rest = divmod(launch.grid, channel_tiles)
    assert rest == 0
    assert (row_tiles - 1) * row_threads < batch * block <= row_tiles * row_threads
    assert launch.extra_arguments == (batch * block, block)


@pytest.mark.parametrize("width", [width for width, _ in CHECKPOINTS.values()])
@pytest.mark.parametrize("batch, block", [(1, 8), (1, 5), (8, 16), (4096, 8)])
def test_symbolic_convolution_launch(width: int, batch: int, block: int) -> None:
    for geometry in convolutions(width):
        symbolic, actual = geometry.launch(Symbol("N"), Symbol("B")), geometry.launch(batch, block)
        assert evaluate(symbolic.grid, N=batch, B=block) == actual.grid
        assert tuple(evaluate(value, N=batch, B=block) for value in symbolic.extra_arguments) == actual.extra_arguments
        assert symbolic.threads == actual.threads


def test_selector_launch() -> None:
    for geometry in selectors(8):
        symbolic, actual = geometry.launch(Symbol("N"), Symbol("S")), geometry.launch(3, 7)
        assert (actual.grid, actual.threads, actual.extra_arguments) == (3, 16 * 32, (7,))
        assert (symbolic.grid.text, symbolic.extra_arguments) == ("N", (Symbol("S"),))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"taps": 9}, "taps is 9, the kernel has 1 to 8"),
        ({"taps": 0}, "taps is 0"),
        ({"group_size": 10}, "group_size 10 does not divide the width 64"),
        ({"group_size": 0}, "group_size 0"),
        ({"side": 2}, "side is 2"),
        ({"hidden_dtype": "float16"}, "dtype float16"),
        ({"residual_dtype": "int32"}, "dtype int32"),
    ],
)
def test_convolutions_that_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"width": 64, "taps": 2, "group_size": 16, "side": 0}
    dtypes = dict.fromkeys(("hidden_dtype", "coefficient_dtype", "base_dtype"), "float32")
    with pytest.raises(GeometryError, match=message):
        GroupedConvGeometry(**{**arguments, **dtypes, **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"candidates": 33}, "candidates is 33, the kernel has 1 to 32"),
        ({"rank": 513}, "rank is 513"),
        ({"max_slots": 32}, "max_slots is 32"),
        ({"max_slots": 0}, "max_slots is 0"),
        ({"id_dtype": "float32"}, "ids are float32"),
        ({"codebook_dtype": "float16"}, "dtype float16"),
    ],
)
def test_selectors_that_are_refused(change: dict[str, Any], message: str) -> None:
    sizes = {"candidates": 16, "rank": 256, "max_slots": 7, "sampled": True}
    dtypes = {"id_dtype": "int64", "logit_dtype": "float32", "projected_dtype": "float32", "codebook_dtype": "bfloat16"}
    with pytest.raises(GeometryError, match=message):
        SelectorGeometry(**{**sizes, **dtypes, **change})
