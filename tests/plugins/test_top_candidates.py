"""The top candidates: reference and function body, geometries, launches; and the kernel on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.plugins.kernel import GeometryError
from dfc.plugins.top_candidates.body import emit_top_candidates
from dfc.plugins.top_candidates.launch import TopCandidatesGeometry
from dfc.plugins.top_candidates.reference import top_candidates
from dfc.runtime.engine import Array
from tests.plugins.driver import TORCH_DTYPES, LoadedKernel
from tests.plugins.faces import run_body
from tests.plugins.test_launch import Symbol, evaluate


def ranked(logits: Array, k: int, vocab_size: int) -> tuple[Array, Array]:
    """Return values and ids by an order of pairs: the largest logit first, then the lowest id."""
    real = logits[..., :vocab_size].astype(np.float64)
    ids = np.lexsort((np.broadcast_to(np.arange(vocab_size), real.shape), -real), axis=-1)[..., :k]
    return np.take_along_axis(logits, ids, axis=-1), ids


def draw_logits(seed: int, rows: tuple[int, int], width: int, levels: int) -> Array:
    """Draw logits of which only so many values are different."""
    random = np.random.default_rng(seed)
    return np.round(random.standard_normal((*rows, width)) * levels).astype(np.float32) / 4.0


@given(
    seed=st.integers(0, 2**31),
    width=st.integers(1, 300),
    padding=st.integers(0, 20),
    k=st.integers(1, 32),
    levels=st.sampled_from([0, 1, 10, 1000]),
)
@settings(max_examples=100, deadline=None)
def test_reference_and_body_take_the_lowest_of_equal_logits(
    seed: int, width: int, padding: int, k: int, levels: int
) -> None:
    k = min(k, width)
    logits = draw_logits(seed, (2, 3), width + padding, levels)
    logits[..., width:] = 1e6
    values, ids = ranked(logits, k, width)
    for found in (
        [tensor.numpy() for tensor in top_candidates(torch.from_numpy(logits), k, width)],
        run_body(
            {"logits": logits}, lambda op, inputs: emit_top_candidates(op, inputs["logits"], k=k, vocab_size=width)
        ),
    ):
        np.testing.assert_array_equal(found[0], values)
        np.testing.assert_array_equal(found[1], ids)


def test_launch_has_a_block_for_every_row() -> None:
    geometry = TopCandidatesGeometry(16, 248320, 248077, "bfloat16")
    symbolic, actual = geometry.launch(Symbol("N"), Symbol("S")), geometry.launch(3, 7)
    assert (actual.grid, actual.extra_arguments) == (21, (21,))
    assert evaluate(symbolic.grid, N=3, S=7) == 21
    assert [evaluate(value, N=3, S=7) for value in symbolic.extra_arguments] == [21]
    assert symbolic.threads == actual.threads == 1024


@pytest.mark.parametrize(
    "width, logit_dtype, vector", [(248320, "bfloat16", 8), (248320, "float32", 4), (33, "bfloat16", 1)]
)
def test_rows_begin_where_an_access_may(width: int, logit_dtype: str, vector: int) -> None:
    assert ("VECTOR", str(vector)) in TopCandidatesGeometry(1, width, width, logit_dtype).kernel().defines


@pytest.mark.parametrize(
    "change, message",
    [
        ({"candidates": 33}, "k is 33, the kernel has 1 to 32"),
        ({"candidates": 0}, "k is 0"),
        ({"vocab_size": 65}, "vocab_size is 65, it must be 16 .k. to 64"),
        ({"vocab_size": 15}, "vocab_size is 15"),
        ({"logit_dtype": "float16"}, "logits are float16"),
    ],
)
def test_geometries_that_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GeometryError, match=message):
        TopCandidatesGeometry(**{"candidates": 16, "width": 64, "vocab_size": 60, "logit_dtype": "float32", **change})


def run_kernel(logits: torch.Tensor, k: int, vocab_size: int) -> tuple[Array, Array]:
    batch, slots, width = logits.shape
    logit_dtype = next(name for name, dtype in TORCH_DTYPES.items() if dtype == logits.dtype)
    geometry = TopCandidatesGeometry(k, width, vocab_size, logit_dtype)
    outputs = [((batch, slots, k), logit_dtype), ((batch, slots, k), "int64")]
    values, ids = LoadedKernel(geometry.kernel()).run(geometry.launch(batch, slots), [logits], outputs)
    return values.float().cpu().numpy(), ids.cpu().numpy()


def check_kernel(logits: torch.Tensor, k: int, vocab_size: int) -> None:
    values, ids = run_kernel(logits, k, vocab_size)
    expected_values, expected_ids = top_candidates(logits.float().cpu(), k, vocab_size)
    np.testing.assert_array_equal(ids, expected_ids.numpy())
    np.testing.assert_array_equal(values, expected_values.numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("logit_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("width, vocab_size", [(248320, 248077), (202048, 202048), (154880, 154879)])
def test_kernel_on_whole_vocabularies(width: int, vocab_size: int, batch: int, logit_dtype: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(width + batch)
    logits = torch.randn(batch, 7, width, generator=generator, device="cuda") * 2.5
    logits[..., vocab_size:] = 100.0
    check_kernel(logits.to(TORCH_DTYPES[logit_dtype]), 16, vocab_size)


@pytest.mark.gpu
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    width=st.one_of(st.integers(1, 300), st.integers(20_000, 70_000)),
    padding=st.integers(0, 20),
    k=st.integers(1, 32),
    levels=st.sampled_from([0, 1, 10, 1000]),
    logit_dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_kernel_geometries(seed: int, width: int, padding: int, k: int, levels: int, logit_dtype: str) -> None:
    logits = draw_logits(seed, (2, 3), width + padding, levels)
    logits[..., width:] = 1e6
    check_kernel(torch.from_numpy(logits).cuda().to(TORCH_DTYPES[logit_dtype]), min(k, width), width)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["ascending", "descending", "equal", "lowest", "one_thread"])
def test_kernel_on_rows_that_are_hard_for_it(order: str) -> None:
    width = 248320
    row = torch.arange(width, dtype=torch.float32)
    rows = {
        "ascending": row,
        "descending": -row,
        "equal": torch.zeros(width),
        "lowest": torch.full((width,), float("-inf")),
        # Every logit above the bound belongs to one group of threads.
        "one_thread": torch.where((row % (1024 * 4)) < 4, row, -1.0),
    }
    check_kernel(rows[order].repeat(1, 2, 1).cuda(), 16, width - 3)
