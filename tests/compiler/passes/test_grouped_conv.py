"""The grouped convolution as TensorRT-RTX gets it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnxscript import OpBuilder

from dfc.compiler.export import ops
from tests.compiler.passes.running import Compiled


@pytest.mark.parametrize("after_product", [False, True])
def test_rows_that_a_product_gives_are_shifted_by_another_product(after_product: bool) -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (1, 5, 16), "weight": (16, 16), "coefficients": (1, 5, 2 * 3 * 4), "base": (2, 3, 16)}
    inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    def convolved(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        rows = ops.linear(op, values["x"], values["weight"])
        rows = rows if after_product else op.Swish(rows)
        kernel = (values["coefficients"], values["base"])
        return [ops.grouped_convolution(op, rows, *kernel, None, side=1, taps=3, group_size=4)]

    compiled = Compiled(inputs, convolved, backend="tensorrt")
    assert ("Pad" in compiled.op_types) is not after_product
    rows = inputs["x"] @ inputs["weight"].T
    rows = rows if after_product else rows / (1 + np.exp(-rows))
    dynamic = inputs["coefficients"].reshape(1, 5, 2, 3, 4, 1)
    kernels = (dynamic + inputs["base"].reshape(2, 3, 4, 4)).reshape(1, 5, 2, 3, 16)[:, :, 1]
    expected = rows * kernels[:, :, 0]
    for tap in (1, 2):
        expected[:, tap:] += rows[:, :-tap] * kernels[:, tap:, tap]
    np.testing.assert_allclose(compiled.run(inputs)[0], expected, rtol=1e-4, atol=1e-4)
