"""What the target's caches must hold after a sequence of tokens, from transformers' own cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tests.oracle.target import Target


@dataclass(frozen=True)
class AttentionState:
    """Keys (after rope) and values, [kv_heads, T, head_dim] float32."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class GatedDeltaNetState:
    """``conv`` [channels, kernel - 1]: the last columns before convolution and SiLU, oldest first.

    Columns before token 0 are zero. ``recurrent`` is [value_heads, key_dim, value_dim]. Both float32.
    """

    conv: Tensor
    recurrent: Tensor


LayerState = AttentionState | GatedDeltaNetState


def state_after(checkpoint: Path | Target, token_ids: list[int]) -> tuple[LayerState, ...]:
    """Each decoder layer's state after feeding ``token_ids`` (possibly none)."""
    target = checkpoint if isinstance(checkpoint, Target) else Target(checkpoint)
    config = target.config
    if not token_ids:
        return tuple(_empty(target, layer_type) for layer_type in config.layer_types)
    cache = target.new_cache(token_ids)
    states: list[LayerState] = []
    for layer, layer_type in zip(cache.layers, config.layer_types, strict=True):
        if layer_type == "full_attention":
            states.append(AttentionState(layer.keys[0].clone(), layer.values[0].clone()))
        else:
            # transformers keeps kernel_size columns; the oldest is never read again
            columns = layer.conv_states[0][0]
            conv = columns[:, columns.shape[1] - config.linear_conv_kernel_dim + 1 :].clone()
            states.append(GatedDeltaNetState(conv, layer.recurrent_states[0][0].clone()))
    return tuple(states)


def _empty(target: Target, layer_type: str) -> LayerState:
    config = target.config
    if layer_type == "full_attention":
        empty = torch.zeros(config.num_key_value_heads, 0, config.head_dim)
        return AttentionState(empty, empty.clone())
    key_dim, value_dim = config.linear_key_head_dim, config.linear_value_head_dim
    channels = 2 * config.linear_num_key_heads * key_dim + config.linear_num_value_heads * value_dim
    return GatedDeltaNetState(
        torch.zeros(channels, config.linear_conv_kernel_dim - 1),
        torch.zeros(config.linear_num_value_heads, key_dim, value_dim),
    )
