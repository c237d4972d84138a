"""The few tensor formulas the drafters share, float32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def rotate_half(x: Tensor) -> Tensor:
    """Neox (half-split) rotation: (a, b) -> (-b, a)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def rotate(x: Tensor, positions: Tensor, theta: float, rotary_dim: int) -> Tensor:
    """Rotary embedding of the first ``rotary_dim`` channels; x [..., T, head_dim], positions [T]."""
    return rotate_by(x, positions, theta ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim))


def rotate_by(x: Tensor, positions: Tensor, frequencies: Tensor, scale: float = 1.0) -> Tensor:
    """Rotary embedding with given frequencies [pairs]; cosines and sines are multiplied by ``scale``."""
    rotary_dim = 2 * len(frequencies)
    angles = torch.cat([positions[:, None].float() * frequencies] * 2, dim=-1)
    turned, passed = x[..., :rotary_dim], x[..., rotary_dim:]
    return torch.cat([(turned * angles.cos() + rotate_half(turned) * angles.sin()) * scale, passed], dim=-1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Softmax attention, scale head_dim ** -0.5, grouped heads.

    queries [heads, Q, head_dim], keys and values [kv_heads, K, head_dim], visible [Q, K] bool; returns
    [Q, heads * head_dim].
    """
    group = queries.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
    scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    mixed: Tensor = weights @ values
    return mixed.transpose(0, 1).flatten(1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[T, heads * head_dim] -> [heads, T, head_dim]"""
    return x.reshape(x.shape[0], heads, -1).transpose(0, 1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Plain RMSNorm: weight * x / rms(x) over the last axis."""
    return weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """down(silu(gate x) * up x), weights as stored [out, in]."""
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T
