"""States the oracle reports, checked against the written-out recurrence and against continued decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.functional import silu, softplus

from tests.oracle.random_checkpoints import TargetGeometry, write_target
from tests.oracle.state import AttentionState, GatedDeltaNetState, state_after
from tests.oracle.target import Target

TOKENS = [10, 50, 99, 200, 61, 7, 7, 130]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    torch.set_num_threads(1)
    directory: Path = tmp_path_factory.mktemp("state") / "target"
    return Target(write_target(directory, TargetGeometry(dtype=torch.float32)))


def test_recurrence_of_the_first_layer(target: Target) -> None:
    """S *= exp(g); d = beta * (v - S^T k); S += k d^T, token by token, from the raw tensors."""
    config, tensors = target.config, target.tensors
    name = "model.layers.0"
    x = target.embedding[torch.tensor(TOKENS)]
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + config.rms_norm_eps)
    normed = normed * (1 + tensors[f"{name}.input_layernorm.weight"])
    name = f"{name}.linear_attn"
    columns = normed @ tensors[f"{name}.in_proj_qkv.weight"].T
    kernel = tensors[f"{name}.conv1d.weight"][:, 0]
    padded = torch.cat([torch.zeros(kernel.shape[1] - 1, columns.shape[1]), columns])
    mixed = silu(torch.stack([padded[tap : tap + len(TOKENS)] * kernel[:, tap] for tap in range(4)]).sum(0))
    key_size = config.linear_num_key_heads * config.linear_key_head_dim
    keys = mixed[:, key_size : 2 * key_size].reshape(len(TOKENS), config.linear_num_key_heads, -1)
    values = mixed[:, 2 * key_size :].reshape(len(TOKENS), config.linear_num_value_heads, -1)
    keys = keys * torch.rsqrt(keys.square().sum(-1, keepdim=True) + 1e-6)
    keys = keys.repeat_interleave(config.linear_num_value_heads // config.linear_num_key_heads, dim=1)
    beta = (normed @ tensors[f"{name}.in_proj_b.weight"].T).sigmoid()
    rate = normed @ tensors[f"{name}.in_proj_a.weight"].T + tensors[f"{name}.dt_bias"]
    decay = torch.exp(-tensors[f"{name}.A_log"].exp() * softplus(rate))
    state = torch.zeros(config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
    for row in range(len(TOKENS)):
        state = state * decay[row, :, None, None]
        delta = beta[row, :, None] * (values[row] - torch.einsum("hkv,hk->hv", state, keys[row]))
        state = state + torch.einsum("hk,hv->hkv", keys[row], delta)
    reported = state_after(target, TOKENS)[0]
    assert isinstance(reported, GatedDeltaNetState)
    torch.testing.assert_close(reported.recurrent, state, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(reported.conv, columns[-3:].T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 2, 8])
def test_shapes_and_zero_history(target: Target, length: int) -> None:
    states = state_after(target, TOKENS[:length])
    assert [type(state) for state in states] == [GatedDeltaNetState, GatedDeltaNetState, AttentionState]
    delta_net, attention = states[0], states[2]
    assert isinstance(delta_net, GatedDeltaNetState)
    assert isinstance(attention, AttentionState)
    assert delta_net.conv.shape == (2 * 2 * 16 + 4 * 16, 3)
    assert delta_net.recurrent.shape == (4, 16, 16)
    assert attention.keys.shape == attention.values.shape == (2, length, 32)
    missing = max(0, 3 - length)
    assert not delta_net.conv[:, :missing].any()
    assert delta_net.conv[:, missing:].any() == (length > 0)


def test_prefix_keys_do_not_depend_on_later_tokens(target: Target) -> None:
    short, long = state_after(target, TOKENS[:5])[2], state_after(target, TOKENS)[2]
    assert isinstance(short, AttentionState)
    assert isinstance(long, AttentionState)
    torch.testing.assert_close(long.keys[:, :5], short.keys, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(long.values[:, :5], short.values, rtol=1e-5, atol=1e-5)
