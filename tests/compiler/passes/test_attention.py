"""CachedAttention and BlockAttention against attention written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dfc.compiler.export import ops
from dfc.runtime.engine import Array
from tests.compiler.passes.running import Compiled
from tests.oracle.ops import attend, rotate, split_heads

HEADS, KV_HEADS, HEAD_DIM, CAPACITY = 4, 2, 32, 24


def tables(rotary_dim: int) -> tuple[Array, Array]:
    angles = np.arange(CAPACITY)[:, None] * 1e4 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("rotary_dim", [8, 16, 32])
@pytest.mark.parametrize(
    "lengths, valid, rows",
    [
        ([0], [5], 5),
        ([7], [1], 1),
        ([3, 9], [4, 2], 4),
        ([0, 3], [4, 1], 4),
        ([0, 0], [4, 2], 4),
        # More rows, rejected drafts, than the sequence has tokens.
        ([1], [1], 8),
    ],
)
def test_cached_attention(rotary_dim: int, lengths: list[int], valid: list[int], rows: int, backend: str) -> None:
    random = np.random.default_rng(0)
    batch = len(lengths)
    cosine, sine = tables(rotary_dim)
    cache_shape = (batch, KV_HEADS, CAPACITY, HEAD_DIM)
    inputs: dict[str, Array] = {
        "query": random.standard_normal((batch, rows, HEADS * HEAD_DIM), np.float32),
        "key": random.standard_normal((batch, rows, KV_HEADS * HEAD_DIM), np.float32),
        "value": random.standard_normal((batch, rows, KV_HEADS * HEAD_DIM), np.float32),
        "key_cache": random.standard_normal(cache_shape, np.float32),
        "value_cache": random.standard_normal(cache_shape, np.float32),
        "lengths": np.array(lengths),
        "valid": np.array(valid),
        "cosine": cosine,
        "sine": sine,
    }
    compiled = Compiled(
        inputs,
        lambda op, values: ops.cached_attention(
            op, *values.values(), num_heads=HEADS, num_kv_heads=KV_HEADS, rotary_dim=rotary_dim
        ),
        static=("cosine", "sine", "lengths", "valid"),
        backend=backend,
        context=16,
        piece=8,
    )
    output, keys, values = compiled.run(inputs)
    assert compiled.op_types.count("GroupQueryAttention") == (1 if backend == "onnxruntime" else 0)
    for n, (length, count) in enumerate(zip(lengths, valid, strict=True)):
        row = {
            name: torch.from_numpy(inputs[name][n]) for name in ("query", "key", "value", "key_cache", "value_cache")
        }
        positions = torch.arange(length, length + count)
        query, key = (
            rotate(split_heads(row[name][:count], heads), positions, 1e4, rotary_dim)
            for name, heads in (("query", HEADS), ("key", KV_HEADS))
        )
        value = split_heads(row["value"][:count], KV_HEADS)
        all_keys = torch.cat([row["key_cache"][:, :length], key], dim=1)
        all_values = torch.cat([row["value_cache"][:, :length], value], dim=1)
        visible = torch.arange(length + count)[None] <= positions[:, None]
        expected = attend(query, all_keys, all_values, visible)
        np.testing.assert_allclose(output[n, :count], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(keys[n, :, : length + count], all_keys, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(values[n, :, : length + count], all_values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("window", [None, 3, 6])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("starts", [[0], [9], [2, 9]])
def test_block_attention(starts: list[int], causal: bool, window: int | None, backend: str) -> None:
    random = np.random.default_rng(1)
    # An engine of static shape always has context rows; which of them count is for the mask to say.
    batch, block, context = len(starts), 5, max(starts) if backend == "onnxruntime" else 12
    widths = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
    inputs: dict[str, Array] = {
        name: random.standard_normal((batch, block, heads * HEAD_DIM), np.float32) for name, heads in widths.items()
    }
    for name in ("context_key", "context_value"):
        inputs[name] = random.standard_normal((batch, context, KV_HEADS * HEAD_DIM), np.float32)
    inputs["starts"] = np.array(starts)
    compiled = Compiled(
        inputs,
        lambda op, values: [
            ops.block_attention(
                op,
                *values.values(),
                num_heads=HEADS,
                num_kv_heads=KV_HEADS,
                head_dim=HEAD_DIM,
                causal=causal,
                window=window,
            )
        ],
        static=("starts",),
        backend=backend,
        sizes={"S": block - 1},
        context=context,
        piece=4,
    )
    (output,) = compiled.run(inputs)
    for n, start in enumerate(starts):
        row = {name: torch.from_numpy(array[n]) for name, array in inputs.items() if name != "starts"}
        keys = split_heads(torch.cat([row["context_key"][:start], row["key"]]), KV_HEADS)
        values = split_heads(torch.cat([row["context_value"][:start], row["value"]]), KV_HEADS)
        distance = torch.arange(start, start + block)[:, None] - torch.arange(start + block)[None]
        visible = torch.ones_like(distance, dtype=torch.bool)
        if causal:
            visible &= distance >= 0
        if window is not None:
            visible &= distance.abs() < window
        expected = attend(split_heads(row["query"], HEADS), keys, values, visible)
        np.testing.assert_allclose(output[n], expected, rtol=1e-5, atol=1e-5)
