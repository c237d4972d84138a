"""The recurrence, its convolution and its norm, and committing states, against the formulas written out."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnxscript import OpBuilder
from torch.nn.functional import silu, softplus

from dfc.compiler.export import ops
from dfc.runtime.engine import Array
from tests.compiler.passes.running import Compiled

KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM = 2, 6, 8, 12
CHANNELS = 2 * KEY_HEADS * KEY_DIM + HEADS * VALUE_DIM


def operands(batch: int, rows: int) -> dict[str, Array]:
    random = np.random.default_rng(rows)
    return {
        "mixed": random.standard_normal((batch, rows, CHANNELS), np.float32),
        "decay": random.standard_normal((batch, rows, HEADS), np.float32),
        "beta": random.standard_normal((batch, rows, HEADS), np.float32),
        "decay_scale": random.uniform(-1, 2, HEADS).astype(np.float32),
        "decay_bias": random.standard_normal(HEADS).astype(np.float32),
        "state": random.standard_normal((batch, HEADS, VALUE_DIM, KEY_DIM), np.float32),
    }


def recurrence(inputs: dict[str, Array], row: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs [count, heads, value_dim] and the state [heads, value_dim, key_dim] of one sequence (semantics
    E)."""
    mixed, decay, beta = (torch.from_numpy(inputs[name][row, :count]).double() for name in ("mixed", "decay", "beta"))
    scale, bias = (torch.from_numpy(inputs[name]).double() for name in ("decay_scale", "decay_bias"))
    key_size = KEY_HEADS * KEY_DIM
    query, key, value = mixed.split([key_size, key_size, HEADS * VALUE_DIM], dim=-1)
    query, key = (x.view(count, KEY_HEADS, KEY_DIM) for x in (query, key))
    query, key = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query, key = (x.repeat_interleave(HEADS // KEY_HEADS, dim=1) for x in (query * KEY_DIM**-0.5, key))
    value = value.view(count, HEADS, VALUE_DIM)
    state = torch.from_numpy(inputs["state"][row]).double()
    outputs = []
    for t in range(count):
        state = state * torch.exp(-scale.exp() * softplus(decay[t] + bias))[:, None, None]
        missing = value[t] - torch.einsum("hvk,hk->hv", state, key[t])
        state = state + torch.einsum("hv,hk->hvk", beta[t].sigmoid()[:, None] * missing, key[t])
        outputs.append(torch.einsum("hvk,hk->hv", state, query[t]))
    return torch.stack(outputs) if outputs else torch.empty(0, HEADS, VALUE_DIM), state


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("batch, rows", [(1, 1), (1, 8), (2, 5), (1, 40), (2, 192)])
def test_gated_delta_net(batch: int, rows: int, backend: str) -> None:
    inputs = operands(batch, rows)
    compiled = Compiled(
        inputs,
        lambda op, values: ops.gated_delta_net(op, *values.values(), num_key_heads=KEY_HEADS),
        static=("decay_scale", "decay_bias"),
        backend=backend,
        sizes={"T": rows},
    )
    output, state = compiled.run(inputs)
    for n in range(batch):
        expected_output, expected_state = recurrence(inputs, n, rows)
        np.testing.assert_allclose(output[n], expected_output, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state[n], expected_state, rtol=1e-4, atol=1e-5)


COUNTS = [(8, [3]), (8, [8]), (8, [1, 6]), (5, [2, 5]), (1, [1]), (20, [20, 20])]
# A padded prompt chunk commits some rows of several blocks; the onnxruntime backend has no such calls.
PADDED_COUNTS = [(192, [1, 100]), (192, [64, 192])]


@pytest.mark.parametrize(
    "backend, round_rows, rows, counts",
    [
        *(("onnxruntime", 8, *case) for case in COUNTS),
        *(("onnxruntime", 9, *case) for case in COUNTS),
        *(("tensorrt", 8, *case) for case in COUNTS + PADDED_COUNTS),
    ],
)
def test_committed_states(backend: str, round_rows: int, rows: int, counts: list[int]) -> None:
    """Two layers, committed together in one product or each by a second run."""
    first, second = operands(len(counts), rows), operands(len(counts), rows)
    second["state"] = second["state"][::-1].copy() * 0.5
    inputs = {f"first_{name}": array for name, array in first.items()}
    inputs |= {f"second_{name}": array for name, array in second.items()}
    inputs["mask"] = (np.arange(rows) < np.array(counts)[:, None])[..., None]

    def author(op: OpBuilder, values: dict[str, ir.Value]) -> list[ir.Value]:
        states = []
        for layer in ("first", "second"):
            layer_operands = [values[f"{layer}_{name}"] for name in first]
            ops.gated_delta_net(op, *layer_operands, num_key_heads=KEY_HEADS)
            states.append(ops.gated_delta_net(op, *layer_operands, values["mask"], num_key_heads=KEY_HEADS)[1])
        return states

    static = [name for name in inputs if name.endswith(("decay_scale", "decay_bias", "state"))]
    compiled = Compiled(inputs, author, static=static, rows=round_rows, backend=backend, sizes={"T": rows})
    if backend == "onnxruntime":
        assert compiled.op_types.count("GatedDeltaNet") == (2 if round_rows == 8 else 4)
    for layer, states in zip((first, second), compiled.run(inputs), strict=True):
        for n, count in enumerate(counts):
            np.testing.assert_allclose(states[n], recurrence(layer, n, count)[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "backend, round_rows, op_type",
    [("onnxruntime", 1, "CausalConvWithState"), ("onnxruntime", 8, "Sum"), ("tensorrt", 8, "Gather")],
)
@pytest.mark.parametrize("taps", [2, 3, 4])
@pytest.mark.parametrize("batch, rows", [(1, 1), (2, 2), (1, 9)])
def test_causal_convolution(taps: int, batch: int, rows: int, backend: str, round_rows: int, op_type: str) -> None:
    random = np.random.default_rng(taps)
    inputs: dict[str, Array] = {
        "x": random.standard_normal((batch, rows, 10), np.float32),
        "weight": random.standard_normal((10, 1, taps), np.float32),
        "state": random.standard_normal((batch, taps - 1, 10), np.float32),
    }
    compiled = Compiled(
        inputs,
        lambda op, values: ops.causal_convolution(op, *values.values(), taps=taps),
        static=("weight",),
        rows=round_rows,
        backend=backend,
        sizes={"T": rows},
    )
    assert op_type in compiled.op_types
    output, state = compiled.run(inputs)
    columns = torch.from_numpy(np.concatenate([inputs["state"], inputs["x"]], axis=1)).transpose(1, 2)
    expected = silu(torch.nn.functional.conv1d(columns, torch.from_numpy(inputs["weight"]), groups=10)).transpose(1, 2)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state, columns[..., 1 - taps :].transpose(1, 2))


@pytest.mark.parametrize(
    "backend, round_rows, op_type",
    [
        ("onnxruntime", 1, "GatedRMSNorm"),
        ("onnxruntime", 8, "SimplifiedLayerNormalization"),
        ("tensorrt", 8, "RMSNormalization"),
    ],
)
def test_gated_rms_norm(backend: str, round_rows: int, op_type: str) -> None:
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {
        "x": random.standard_normal((2, 3, 4, 8), np.float32),
        "gate": random.standard_normal((2, 3, 32), np.float32),
        "weight": random.standard_normal(8).astype(np.float32),
    }
    compiled = Compiled(
        inputs,
        lambda op, values: [ops.gated_rms_norm(op, *values.values(), epsilon=1e-6)],
        rows=round_rows,
        backend=backend,
    )
    assert op_type in compiled.op_types
    x, gate, weight = (torch.from_numpy(array) for array in inputs.values())
    normed = weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    np.testing.assert_allclose(compiled.run(inputs)[0], normed.flatten(2) * silu(gate), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("decay", [-30.0, 0.0])
def test_rows_that_repeat_do_not_blow_up(decay: float) -> None:
    """The triangular system of equal keys and beta near 1 is the one whose powers grow without bound."""
    inputs = operands(1, 64)
    inputs["mixed"][:] = inputs["mixed"][:, :1]
    inputs["decay"][:], inputs["beta"][:] = decay, 20.0
    compiled = Compiled(
        inputs,
        lambda op, values: ops.gated_delta_net(op, *values.values(), num_key_heads=KEY_HEADS),
        backend="tensorrt",
        sizes={"T": 64},
    )
    output, state = compiled.run(inputs)
    expected_output, expected_state = recurrence(inputs, 0, 64)
    np.testing.assert_allclose(output[0], expected_output, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state[0], expected_state, rtol=1e-3, atol=1e-4)
