"""Mixtures of experts: both of TensorRT's forms and onnxruntime's kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dfc.compiler.export import ops
from dfc.runtime.engine import Array
from tests.compiler.passes.running import Compiled
from tests.oracle.ops import swiglu

EXPERTS, WIDTH, HIDDEN = 12, 10, 8


def written_out(x: Array, logits: Array, gate_up: Array, down: Array, chosen: int) -> Array:
    result = torch.zeros(x.shape)
    for place in np.ndindex(x.shape[:2]):
        best = torch.tensor(logits[place]).softmax(-1).topk(chosen)
        for share, expert in zip(best.values / best.values.sum(), best.indices.tolist(), strict=True):
            gate, up = torch.tensor(gate_up[expert]).chunk(2)
            result[place] += share * swiglu(torch.tensor(x[place]), gate, up, torch.tensor(down[expert]))
    return np.asarray(result)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("rows", [1, 3, 4, 9])
@pytest.mark.parametrize("chosen", [1, 3, 12])
def test_the_chosen_experts_weighted_sum(backend: str, rows: int, chosen: int) -> None:
    random = np.random.default_rng(rows)
    shapes = {
        "x": (1, rows, HIDDEN),
        "logits": (1, rows, EXPERTS),
        "gate_up": (EXPERTS, 2 * WIDTH, HIDDEN),
        "down": (EXPERTS, HIDDEN, WIDTH),
    }
    inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    compiled = Compiled(
        inputs,
        lambda op, values: [ops.experts(op, *values.values(), experts_per_token=chosen)],
        static=("gate_up", "down"),
        backend=backend,
        sizes={"T": rows, "N": 1},
    )
    if backend == "tensorrt":
        assert ("Gather" in compiled.op_types) == (rows * chosen < EXPERTS)
    else:
        assert "MoE" in compiled.op_types
    np.testing.assert_allclose(compiled.run(inputs)[0], written_out(**inputs, chosen=chosen), rtol=1e-4, atol=1e-4)
