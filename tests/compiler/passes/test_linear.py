"""Linear, merging of linears, norms and their fusion, Swish."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnxscript import OpBuilder

from dfc.compiler.export import ops
from dfc.runtime.engine import Array
from tests.compiler.passes.running import Compiled


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_linear_with_bias(backend: str) -> None:
    x, weight, bias = draw((2, 3, 8), (5, 8), (5,))
    inputs = {"x": x, "weight": weight, "bias": bias}
    compiled = Compiled(
        inputs, lambda op, values: [ops.linear(op, *values.values())], static=("weight", "bias"), backend=backend
    )
    np.testing.assert_allclose(compiled.run(inputs)[0], x @ weight.T + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_projections_of_the_same_rows_are_one_product(backend: str) -> None:
    x, first, second, third, bias = draw((2, 3, 8), (5, 8), (2, 8), (7, 8), (7,))
    inputs = {"x": x, "first": first, "second": second, "third": third, "bias": bias}

    def author(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        names = ("first", "second")
        merged = [ops.linear(op, values["x"], values[name]) for name in names]
        return [*merged, ops.linear(op, values["x"], values["third"], values["bias"])]

    compiled = Compiled(inputs, author, static=("first", "second", "third", "bias"), backend=backend)
    # The one with a bias stays alone.
    assert compiled.op_types.count("MatMul" if backend == "onnxruntime" else "Gemm") == 2
    outputs = compiled.run(inputs)
    for output, expected in zip(outputs, (x @ first.T, x @ second.T, x @ third.T + bias), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_a_norm_of_a_sum_also_gives_the_sum() -> None:
    left, right, weight = draw((2, 3, 8), (2, 3, 8), (8,))
    inputs = {"left": left, "right": right, "weight": weight}

    def author(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        total = op.Add(values["left"], values["right"])
        return [total, op.RMSNormalization(total, values["weight"], axis=-1, epsilon=1e-5)]

    compiled = Compiled(inputs, author)
    assert "SkipSimplifiedLayerNormalization" in compiled.op_types
    assert "Add" not in compiled.op_types
    total, normed = compiled.run(inputs)
    np.testing.assert_allclose(total, left + right, rtol=1e-6)
    expected = torch.nn.functional.rms_norm(torch.from_numpy(left + right), (8,), torch.from_numpy(weight), 1e-5)
    np.testing.assert_allclose(normed, expected, rtol=1e-5, atol=1e-5)


def test_a_norm_of_one_value() -> None:
    x, weight = draw((2, 3, 8), (8,))
    inputs = {"x": x, "weight": weight}
    compiled = Compiled(
        inputs, lambda op, values: [op.RMSNormalization(values["x"], values["weight"], axis=-1, epsilon=1e-5)]
    )
    expected = torch.nn.functional.rms_norm(torch.from_numpy(x), (8,), torch.from_numpy(weight), 1e-5)
    np.testing.assert_allclose(compiled.run(inputs)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_swish(backend: str) -> None:
    (x,) = draw((2, 3, 8))
    compiled = Compiled({"x": x}, lambda op, values: [op.Swish(values["x"])], backend=backend)
    expected = torch.nn.functional.silu(torch.from_numpy(x))
    np.testing.assert_allclose(compiled.run({"x": x})[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
def test_query_and_gate_come_out_of_one_weight(backend: str) -> None:
    x, weight = draw((2, 3, 8), (3 * 2 * 4, 8))
    inputs = {"x": x, "weight": weight}
    compiled = Compiled(
        inputs,
        lambda op, values: ops.query_and_gate(op, *values.values(), num_heads=3, head_dim=4),
        static=("weight",),
        backend=backend,
    )
    woven = (x @ weight.T).reshape(2, 3, 3, 2, 4)
    for output, half in zip(compiled.run(inputs), (0, 1), strict=True):
        np.testing.assert_allclose(output, woven[..., half, :].reshape(2, 3, 12), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend, rows", [("onnxruntime", 5), ("tensorrt", 6)])
def test_rows_in_use(backend: str, rows: int) -> None:
    (x,) = draw((2, 8, 3))
    inputs = {"x": x, "counts": np.array([4, 2])}
    compiled = Compiled(
        inputs,
        lambda op, values: [ops.used_rows(op, values["x"], values["counts"], axis=1, room=1)],
        static=("counts",),
        backend=backend,
        context=6,
    )
    np.testing.assert_array_equal(compiled.run(inputs)[0], x[:, :rows])
