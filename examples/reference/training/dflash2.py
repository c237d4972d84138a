"""The DFlash2 drafter as a torch module, for training: many blocks of one sequence at once."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention, silu

from training.corpus import MASK
from training.scale import Scale

RMS_NORM_EPS = 1e-6


class RMSNorm(nn.Module):
    """Plain RMSNorm: weight * x / rms(x)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + RMS_NORM_EPS) * self.weight).to(x.dtype)


class GroupedConv(nn.Module):
    """Grouped dynamic depthwise convolution around a sublayer; x is [..., block, hidden]. Starts as the identity."""

    def __init__(self, hidden_size: int, taps: int, group: int) -> None:
        super().__init__()
        self.taps, self.group, self.groups = taps, group, hidden_size // group
        base = torch.zeros(2, taps, hidden_size)
        base[:, 0] = 1
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = nn.Linear(hidden_size, 2 * taps * self.groups, bias=False)
        nn.init.normal_(self.kernel_projection.weight, std=0.002)

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The sublayer's convolved input, and the coefficients ``finish`` needs."""
        coefficients = self.kernel_projection(x).unflatten(-1, (2, self.taps, self.groups))
        return self._convolve(x, coefficients[..., 0, :, :], 0), coefficients[..., 1, :, :]

    def finish(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """The sublayer's convolved output."""
        return self._convolve(x, coefficients, 1)

    def _convolve(self, x: Tensor, coefficients: Tensor, side: int) -> Tensor:
        kernel = self.base_kernel[side].view(self.taps, self.groups, self.group) + coefficients.unsqueeze(-1)
        grouped = x.unflatten(-1, (self.groups, self.group))
        total = kernel[..., 0, :, :] * grouped
        for tap in range(1, self.taps):
            total = total + kernel[..., tap, :, :] * pad(grouped[..., :-tap, :, :], (0, 0, 0, 0, tap, 0))
        return total.flatten(-2)


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Neox rotary embedding of all channels; x [rows, heads, T, head_dim], positions [rows, T]."""
    size = x.shape[-1]
    angles = positions[:, None, :, None].float() / theta ** (torch.arange(0, size, 2, device=x.device) / size)
    angles = torch.cat([angles, angles], -1)
    first, second = x.chunk(2, -1)
    return (x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()).to(x.dtype)


class Attention(nn.Module):
    """Block rows attend to the context features and to their own block."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = scale.heads, scale.kv_heads, scale.head_dim
        self.rope_theta = scale.dflash2.rope_theta
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(scale.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(scale.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(scale.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, scale.hidden_size, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def forward(self, x: Tensor, context: Tensor, positions: Tensor, context_positions: Tensor, mask: Tensor) -> Tensor:
        queries = rotate(self.q_norm(self._split(self.q_proj(x), self.heads)), positions, self.rope_theta)
        rows = torch.cat([context, x], 1)
        row_positions = torch.cat([context_positions, positions], 1)
        keys = rotate(self.k_norm(self._split(self.k_proj(rows), self.kv_heads)), row_positions, self.rope_theta)
        values = self._split(self.v_proj(rows), self.kv_heads)
        mixed = scaled_dot_product_attention(
            queries, keys.to(queries.dtype), values.to(queries.dtype), attn_mask=mask, enable_gqa=True
        )
        return self.o_proj(mixed.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, hidden_size: int, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class DraftLayer(nn.Module):
    def __init__(self, scale: Scale) -> None:
        super().__init__()
        shape, hidden = scale.dflash2, scale.hidden_size
        self.block_size = shape.block_size
        self.self_attn, self.mlp = Attention(scale), MLP(hidden, scale.intermediate_size)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(hidden), RMSNorm(hidden)
        self.attention_conv = GroupedConv(hidden, shape.conv_kernel_size, shape.conv_group_size)
        self.mlp_conv = GroupedConv(hidden, shape.conv_kernel_size, shape.conv_group_size)

    def _blocks(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.block_size))

    def forward(self, x: Tensor, context: Tensor, positions: Tensor, context_positions: Tensor, mask: Tensor) -> Tensor:
        prepared, coefficients = self.attention_conv.prepare(self._blocks(self.input_layernorm(x)))
        mixed = self.self_attn(prepared.flatten(1, 2), context, positions, context_positions, mask)
        x = x + self.attention_conv.finish(self._blocks(mixed), coefficients).flatten(1, 2)
        prepared, coefficients = self.mlp_conv.prepare(self._blocks(self.post_attention_layernorm(x)))
        return x + self.mlp_conv.finish(self.mlp(prepared), coefficients).flatten(1, 2)


class CandidateSelector(nn.Module):
    """Adds a low-rank score of (predecessor, candidate) pairs, gated by the hidden state, to the unary logits."""

    def __init__(self, hidden_size: int, vocab_size: int, rank: int) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.randn(vocab_size, rank) * 0.02)
        self.successor_codebook = nn.Parameter(torch.randn(vocab_size, rank) * 0.02)
        self.hidden_projection = nn.Linear(hidden_size, rank, bias=False)

    def scores(self, unary: Tensor, candidates: Tensor, predecessors: Tensor, hidden: Tensor) -> Tensor:
        """unary and candidates [..., K], predecessors [...], hidden [..., hidden]; returns [..., K]."""
        gated = self.predecessor_codebook[predecessors] * self.hidden_projection(hidden)
        return unary + torch.einsum("...r,...kr->...k", gated, self.successor_codebook[candidates])


class DFlash2(nn.Module):
    def __init__(self, scale: Scale) -> None:
        super().__init__()
        shape, hidden = scale.dflash2, scale.hidden_size
        self.shape = shape
        self.layers = nn.ModuleList(DraftLayer(scale) for _ in range(shape.layers))
        self.fc = nn.Linear(len(shape.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm, self.norm = RMSNorm(hidden), RMSNorm(hidden)
        self.candidate_selector = CandidateSelector(hidden, scale.vocab_size, shape.selector_rank)

    def propose(self, embedding: nn.Embedding, token_ids: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
        """Final hidden rows of every block's draft slots.

        token_ids [rows, T], features [rows, T, taps * hidden], anchors [rows, blocks] positions; returns
        [rows, blocks, block_size - 1, hidden].
        """
        rows, blocks = anchors.shape
        size, length, device = self.shape.block_size, token_ids.shape[1], token_ids.device
        block_ids = torch.full((rows, blocks, size), MASK, device=device)
        block_ids[:, :, 0] = token_ids.gather(1, anchors)
        positions = (anchors[..., None] + torch.arange(size, device=device)).flatten(1)
        context_positions = torch.arange(length, device=device)[None].expand(rows, length)
        mask = block_mask(anchors, size, length)
        context = self.hidden_norm(self.fc(features))
        x = embedding(block_ids.flatten(1))
        for layer in self.layers:
            x = layer(x, context, positions, context_positions, mask)
        return self.norm(x).unflatten(1, (-1, size))[:, :, 1:]


def block_mask(anchors: Tensor, block_size: int, length: int) -> Tensor:
    """Context before the anchor and the own block; [rows, 1, blocks * block_size, length + blocks * block_size]
    bool."""
    rows, blocks = anchors.shape
    context = torch.arange(length, device=anchors.device)[None, None, None] < anchors[:, :, None, None]
    context = context.expand(rows, blocks, block_size, length).reshape(rows, blocks * block_size, length)
    block = torch.arange(blocks * block_size, device=anchors.device) // block_size
    own = (block[:, None] == block[None])[None].expand(rows, -1, -1)
    return torch.cat([context, own], -1)[:, None]


def save_dflash2(directory: Path, drafter: DFlash2, scale: Scale) -> None:
    """Writes the drafter in the layout of published DFlash2 checkpoints, in its current dtype."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous().cpu() for name, tensor in drafter.state_dict().items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(_config(scale), indent=2))


def _config(scale: Scale) -> dict[str, object]:
    shape = scale.dflash2
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": scale.hidden_size,
        "intermediate_size": scale.intermediate_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": scale.heads,
        "num_key_value_heads": scale.kv_heads,
        "head_dim": scale.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": RMS_NORM_EPS,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "max_position_embeddings": 8192,
        "vocab_size": scale.vocab_size,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "block_size": shape.block_size,
        "num_target_layers": scale.target_layers,
        "layer_types": ["full_attention"] * shape.layers,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "is_causal": False,
        "dflash_config": {
            "block_size": shape.block_size,
            "mask_token_id": MASK,
            "target_layer_ids": list(shape.target_layer_ids),
            "conv_kernel_size": shape.conv_kernel_size,
            "conv_group_size": shape.conv_group_size,
            "selector_rank": shape.selector_rank,
            "selector_top_k": shape.selector_top_k,
        },
    }
