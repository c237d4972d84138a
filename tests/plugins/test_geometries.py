"""Other geometries: the function bodies against the torch references."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.runtime.engine import Array
from tests.plugins import faces


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 3),
    block=st.integers(1, 32),
    groups=st.integers(1, 6),
    group_size=st.integers(1, 20),
    taps=st.integers(1, 8),
    side=st.integers(0, 1),
    with_residual=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_grouped_convolution(
    batch: int, block: int, groups: int, group_size: int, taps: int, side: int, with_residual: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    hidden, residual = random.standard_normal((2, batch, block, groups * group_size), np.float32)
    coefficients = random.standard_normal((batch, block, 2 * taps * groups), np.float32)
    base = random.standard_normal((2, taps, groups * group_size), np.float32)
    arguments = (hidden, coefficients, base, residual if with_residual else None, side, taps, group_size)
    expected = faces.convolve_by_reference(*arguments)
    np.testing.assert_allclose(faces.convolve_by_body(*arguments), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 4),
    slots=st.integers(1, 31),
    count=st.integers(1, 32),
    rank=st.sampled_from([1, 3, 64, 512]),
    seed=st.integers(0, 2**32 - 1),
)
def test_selector(batch: int, slots: int, count: int, rank: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    vocabulary = 40
    inputs: dict[str, Array] = {
        "candidate_ids": np.stack(
            [[random.permutation(vocabulary)[:count] for _ in range(slots)] for _ in range(batch)]
        ).astype(np.int64),
        "candidate_logits": random.standard_normal((batch, slots, count), np.float32),
        "projected": random.standard_normal((batch, slots, rank), np.float32) / np.float32(rank**0.5),
        "predecessor_codebook": random.standard_normal((vocabulary, rank), np.float32),
        "successor_codebook": random.standard_normal((vocabulary, rank), np.float32),
        "anchor": random.integers(0, vocabulary, batch),
    }
    # Greedy and sampled rows in one call.
    temperature = random.choice([0.0, 0.6, 1.0, 1.3], batch).astype(np.float32)
    uniforms = random.uniform(0, 1, (batch, slots)).astype(np.float32)
    expected_tokens, expected_q = faces.select_by_reference(inputs, temperature, uniforms)
    tokens, q = faces.select_by_body(inputs, temperature, uniforms)
    np.testing.assert_array_equal(tokens, expected_tokens)
    np.testing.assert_allclose(q, expected_q, rtol=1e-4, atol=1e-5)


def test_ties_go_to_the_lowest_candidate() -> None:
    inputs: dict[str, Array] = {
        "candidate_ids": np.array([[[7, 3, 5], [2, 9, 4]]]),
        "candidate_logits": np.array([[[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]], np.float32),
        "projected": np.zeros((1, 2, 4), np.float32),
        "predecessor_codebook": np.ones((10, 4), np.float32),
        "successor_codebook": np.ones((10, 4), np.float32),
        "anchor": np.array([1]),
    }
    assert faces.select_greedily_by_body(inputs, 2).tolist() == [[7, 9]]
    tokens, _ = faces.select_by_reference(inputs, np.zeros(1, np.float32), np.zeros((1, 2), np.float32))
    assert tokens.tolist() == [[7, 9]]
