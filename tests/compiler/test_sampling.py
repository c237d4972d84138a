"""The sampling graph against transformers' processors in float64, and its draws against exact probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxscript import OpBuilder
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from dfc.compiler.models.sampling import RUN, SamplingParameters, distribution, draw
from dfc.runtime.engine import Array
from tests.compiler.passes.running import Compiled

NAMES = ("temperature", "top_k", "top_p", "min_p")


def expected_distribution(logits: Array, temperature: float, top_k: int, top_p: float, min_p: float) -> Array:
    """Return what transformers samples from [J, V], in float64."""
    scores = torch.from_numpy(logits.astype(np.float64))
    processors: Any = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        processors.append(TopPLogitsWarper(top_p))
    if min_p > 0.0:
        processors.append(MinPLogitsWarper(min_p))
    probabilities: Array = torch.softmax(processors(None, scores), dim=-1).numpy()
    return probabilities


def parameter_arrays(rows: list[tuple[float, int, float, float]]) -> dict[str, Array]:
    columns = zip(*rows, strict=True)
    dtypes = (np.float32, np.int64, np.float32, np.float32)
    return {name: np.array(column, dtype) for name, column, dtype in zip(NAMES, columns, dtypes, strict=True)}


@pytest.fixture(scope="module", params=["onnxruntime", "tensorrt"])
def compiled_distribution(request: pytest.FixtureRequest) -> Compiled:
    inputs = {"logits": np.zeros((2, 3, 50), np.float32), **parameter_arrays([(1.0, 0, 1.0, 0.0)] * 2)}

    def author(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        return [distribution(op, values["logits"], SamplingParameters(*(values[name] for name in NAMES)))]

    return Compiled(inputs, author, backend=request.param)


ROWS = st.tuples(
    st.floats(0.1, 3.0),
    st.one_of(st.just(0), st.integers(1, 60)),
    st.one_of(st.just(1.0), st.floats(0.05, 0.999)),
    st.one_of(st.just(0.0), st.floats(0.001, 0.5)),
)


@given(rows=st.lists(ROWS, min_size=2, max_size=2), seed=st.integers(0, 1000), width=st.floats(0.5, 10.0))
@settings(max_examples=200, deadline=None)
def test_distributions_are_those_of_transformers(
    compiled_distribution: Compiled, rows: list[tuple[float, int, float, float]], seed: int, width: float
) -> None:
    logits = (np.random.default_rng(seed).standard_normal((2, 3, 50)) * width).astype(np.float32)
    rows = [tuple(np.float32(value).item() if isinstance(value, float) else value for value in row) for row in rows]  # type: ignore[misc]
    (found,) = compiled_distribution.run({"logits": logits, **parameter_arrays(rows)})
    for n, row in enumerate(rows):
        expected = expected_distribution(logits[n], *row)
        edge = _edge_of_nucleus(logits[n], row)
        # Where a sum comes within rounding of its limit, either side of it is right.
        for j in range(3):
            if edge[j] > 1e-5:
                np.testing.assert_allclose(found[n, j], expected[j], rtol=1e-4, atol=1e-6)


def _edge_of_nucleus(logits: Array, row: tuple[float, int, float, float]) -> Array:
    """Return how near a cut of top-p or min-p is to a token's border, for each of the rows [J]."""
    temperature, top_k, top_p, min_p = row
    before = expected_distribution(logits, temperature, top_k, 1.0, 0.0)
    ordered = -np.sort(-before, axis=-1)
    sums = np.cumsum(ordered, axis=-1)
    ratios = ordered / ordered[:, :1]
    found: Array = np.minimum(np.abs(sums - top_p).min(axis=-1), np.abs(ratios - min_p).min(axis=-1) if min_p else 1.0)
    return found if top_p < 1.0 or min_p else np.ones(len(logits))


def test_a_temperature_of_zero_takes_the_first_of_the_largest(compiled_distribution: Compiled) -> None:
    logits = np.zeros((2, 3, 50), np.float32)
    logits[:, :, [7, 9]] = 2.0
    (found,) = compiled_distribution.run(
        {"logits": logits, **parameter_arrays([(0.0, 5, 0.5, 0.1), (1.0, 2, 1.0, 0.0)])}
    )
    np.testing.assert_array_equal(np.flatnonzero(found[0, 0]), [7])
    # Tokens as likely as the last one kept are kept, as transformers does.
    np.testing.assert_allclose(found[1, :, [7, 9]], 0.5)


def compile_draw(vocab_size: int) -> Compiled:
    inputs = {"probabilities": np.zeros((2, vocab_size), np.float32), "uniform": np.zeros(2, np.float32)}

    def author(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        return [draw(op, values["probabilities"], values["uniform"], vocab_size=vocab_size)]

    return Compiled(inputs, author)


@pytest.fixture(scope="module")
def compiled_draw() -> Compiled:
    return compile_draw(5)


@pytest.mark.parametrize("vocab_size", [RUN - 1, RUN, 2 * RUN, 3 * RUN + 7])
def test_a_draw_from_many_tokens_finds_the_one_at_its_place(vocab_size: int) -> None:
    compiled = compile_draw(vocab_size)
    random = np.random.default_rng(vocab_size)
    for _ in range(50):
        probabilities = random.random((2, vocab_size), np.float32) ** 8
        probabilities[0, random.random(vocab_size) < 0.9] = 0.0
        uniform = random.random(2, np.float32)
        (found,) = compiled.run({"probabilities": probabilities, "uniform": uniform})
        sums = probabilities.astype(np.float64).cumsum(axis=1)
        target = uniform * sums[:, -1]
        for row, token in enumerate(found):
            # Sums in float32 may put a border this much elsewhere.
            slack = 1e-5 * sums[row, -1]
            before = sums[row, token] - probabilities[row, token]
            assert before - slack <= target[row] <= sums[row, token] + slack
            assert probabilities[row, token] > 0


def test_a_draw_finds_the_token_at_its_place_in_the_sum(compiled_draw: Compiled) -> None:
    probabilities = np.array([[0.0, 0.25, 0.0, 0.75, 0.0], [0.0, 0.0, 0.5, 0.0, 0.0]], np.float32)
    for uniform, token in ((0.0, 1), (0.2499, 1), (0.25, 3), (1 - 2.0**-23, 3)):
        (found,) = compiled_draw.run({"probabilities": probabilities, "uniform": np.full(2, uniform, np.float32)})
        assert found.tolist() == [token, 2]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_tokens_without_probability_are_never_drawn(compiled_draw: Compiled, seed: int) -> None:
    random = np.random.default_rng(seed)
    probabilities = random.random((2, 5), np.float32) ** 8 * (random.random((2, 5)) < 0.4)
    probabilities[:, seed % 5] += np.float32(1e-30)
    uniform = random.choice([0.0, 0.5, 1 - 2.0**-23], 2).astype(np.float32)
    (found,) = compiled_draw.run({"probabilities": probabilities.astype(np.float32), "uniform": uniform})
    assert (probabilities[np.arange(2), found] > 0).all()
