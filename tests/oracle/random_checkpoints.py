"""Small checkpoints with random weights in the layouts that publishers use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

ARCHITECTURES = {False: "ForCausalLM", True: "ForConditionalGeneration"}


@dataclass(frozen=True)
class Experts:
    """A mixture in place of every dense feed-forward; stored fused, or one tensor each."""

    count: int = 8
    chosen: int = 3
    width: int = 40
    shared_width: int = 56
    fused: bool = True
    mtp_fused: bool = True


@dataclass(frozen=True)
class TargetGeometry:
    """A Qwen3.5-class target; ``layers`` is one letter each: g (Gated DeltaNet) or a (attention)."""

    layers: str = "gga"
    hidden_size: int = 64
    intermediate_size: int = 96
    vocab_size: int = 320
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    partial_rotary_factor: float = 0.25
    key_heads: int = 2
    value_heads: int = 4
    key_head_dim: int = 16
    value_head_dim: int = 16
    conv_kernel_size: int = 4
    with_vision: bool = False
    tied: bool = False
    mtp: bool = True
    shards: int = 2
    dtype: torch.dtype = torch.bfloat16
    layer_types_listed: bool = True
    experts: Experts | None = None
    rope: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class DraftGeometry:
    """A DFlash or DFlash2 drafter for a target of the same hidden size; a window of 0 is full attention."""

    block_size: int = 8
    target_layer_ids: tuple[int, ...] = (0, 2)
    windows: tuple[int, ...] = (0, 0)
    causal: bool | None = None
    intermediate_size: int = 80
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    taps: int = 2
    group_size: int = 16
    rank: int = 8
    top_k: int = 6
    nested: bool = True
    attention_bias: bool = False
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    codebook_suffix: str = ""
    prefix: str = ""
    seed: int = 1


def write_target(directory: Path, geometry: TargetGeometry) -> Path:
    """Write a target checkpoint with a byte-level tokenizer."""
    directory.mkdir(parents=True)
    text_config = _text_config(geometry)
    family = "Qwen3_5" if geometry.experts is None else "Qwen3_5Moe"
    architecture = family + ARCHITECTURES[geometry.with_vision]
    if geometry.with_vision:
        config = {
            "architectures": [architecture],
            "model_type": "qwen3_5" if geometry.experts is None else "qwen3_5_moe",
            "text_config": text_config,
            "vision_config": {"model_type": "qwen3_5"},
            "tie_word_embeddings": geometry.tied,
        }
    else:
        config = {"architectures": [architecture], **text_config, "tie_word_embeddings": geometry.tied}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    _write_tokenizer(directory / "tokenizer.json")
    _write_shards(directory, _target_tensors(geometry), geometry.shards)
    return directory


def write_dflash2(directory: Path, target: TargetGeometry, geometry: DraftGeometry) -> Path:
    """Write a DFlash2 checkpoint that fits the target."""
    own = {
        "conv_kernel_size": geometry.taps,
        "conv_group_size": geometry.group_size,
        "selector_rank": geometry.rank,
        "selector_top_k": geometry.top_k,
    }
    config = _draft_config(target, geometry, "DFlash2DraftModel", own)
    return _write_draft(directory, config, _dflash2_tensors(target, geometry))


def write_dflash(directory: Path, target: TargetGeometry, geometry: DraftGeometry) -> Path:
    """Write a DFlash checkpoint that fits the target, without the geometry's convolution and selector."""
    tensors = {
        name: tensor
        for name, tensor in _dflash2_tensors(target, geometry).items()
        if "_conv." not in name and "candidate_selector" not in name
    }
    return _write_draft(directory, _draft_config(target, geometry, "DFlashDraftModel", {}), tensors)


def _write_draft(directory: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(tensors, directory / "model.safetensors")
    return directory


def _draft_config(
    target: TargetGeometry, geometry: DraftGeometry, architecture: str, own: dict[str, Any]
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "block_size": geometry.block_size,
        "mask_token_id": target.vocab_size - 1,
        "target_layer_ids": list(geometry.target_layer_ids),
        **own,
        "input_embedding_scale": geometry.input_embedding_scale,
        "output_multiplier": geometry.output_multiplier,
        "final_logit_softcapping": geometry.final_logit_softcapping,
    }
    windows = sorted({window for window in geometry.windows if window})
    return {
        "architectures": [architecture],
        "model_type": "qwen3",
        "hidden_size": target.hidden_size,
        "intermediate_size": geometry.intermediate_size,
        "num_hidden_layers": len(geometry.windows),
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "head_dim": geometry.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "vocab_size": target.vocab_size,
        "attention_bias": geometry.attention_bias,
        "num_target_layers": len(target.layers),
        "layer_types": ["sliding_attention" if window else "full_attention" for window in geometry.windows],
        "sliding_window": windows[0] if windows else None,
        "use_sliding_window": bool(windows),
        "max_position_embeddings": 1024,
        **({"is_causal": geometry.causal} if geometry.causal is not None else {}),
        **(
            {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}} if geometry.nested else {"rope_theta": 5e5}
        ),
        **({"dflash_config": settings} if geometry.nested else settings),
    }


def _text_config(geometry: TargetGeometry) -> dict[str, Any]:
    kinds = {"g": "linear_attention", "a": "full_attention"}
    listed = {"layer_types": [kinds[layer] for layer in geometry.layers]}
    rope = {
        "rope_type": "default",
        "rope_theta": 1e5,
        "partial_rotary_factor": geometry.partial_rotary_factor,
        "mrope_section": _mrope_section(geometry),
        "mrope_interleaved": True,
        **geometry.rope,
    }
    return {
        "hidden_size": geometry.hidden_size,
        **_feed_forward_config(geometry),
        "vocab_size": geometry.vocab_size,
        "num_hidden_layers": len(geometry.layers),
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "head_dim": geometry.head_dim,
        "linear_num_key_heads": geometry.key_heads,
        "linear_num_value_heads": geometry.value_heads,
        "linear_key_head_dim": geometry.key_head_dim,
        "linear_value_head_dim": geometry.value_head_dim,
        "linear_conv_kernel_dim": geometry.conv_kernel_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 1024,
        "rope_parameters": rope,
        "tie_word_embeddings": geometry.tied,
        "mtp_num_hidden_layers": int(geometry.mtp),
        **(listed if geometry.layer_types_listed else {"full_attention_interval": geometry.layers.index("a") + 1}),
    }


def _feed_forward_config(geometry: TargetGeometry) -> dict[str, Any]:
    if geometry.experts is None:
        return {"model_type": "qwen3_5_text", "intermediate_size": geometry.intermediate_size}
    return {
        "model_type": "qwen3_5_moe_text",
        "num_experts": geometry.experts.count,
        "num_experts_per_tok": geometry.experts.chosen,
        "moe_intermediate_size": geometry.experts.width,
        "shared_expert_intermediate_size": geometry.experts.shared_width,
    }


def _mrope_section(geometry: TargetGeometry) -> list[int]:
    pairs = int(geometry.head_dim * geometry.partial_rotary_factor) // 2
    side = pairs // 3
    return [pairs - 2 * side, side, side]


class _Random:
    """Draws tensors whose scale keeps activations of order one."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def normal(self, *shape: int, scale: float) -> Tensor:
        return (torch.randn(*shape, generator=self._generator) * scale).to(self._dtype)

    def linear(self, rows: int, columns: int, gain: float = 1.0) -> Tensor:
        return self.normal(rows, columns, scale=gain / math.sqrt(columns))

    def uniform(self, size: int, low: float, high: float) -> Tensor:
        return torch.rand(size, generator=self._generator) * (high - low) + low


def _target_tensors(geometry: TargetGeometry) -> dict[str, Tensor]:
    draw = _Random(geometry.seed, geometry.dtype)
    hidden = geometry.hidden_size
    prefix = "model.language_model." if geometry.with_vision else "model."
    tensors = {
        f"{prefix}embed_tokens.weight": draw.normal(
            geometry.vocab_size, hidden, scale=1.0 if not geometry.tied else 0.3
        ),
        f"{prefix}norm.weight": draw.normal(hidden, scale=0.2),
    }
    if not geometry.tied:
        tensors["lm_head.weight"] = draw.linear(geometry.vocab_size, hidden, gain=3.0)
    for index, kind in enumerate(geometry.layers):
        layer = f"{prefix}layers.{index}"
        tensors |= _feed_forward_and_norms(draw, layer, geometry)
        if kind == "a":
            tensors |= _attention(draw, f"{layer}.self_attn", geometry)
        else:
            tensors |= _gated_delta_net(draw, f"{layer}.linear_attn", geometry)
    if geometry.mtp:
        tensors["mtp.fc.weight"] = draw.linear(hidden, 2 * hidden)
        for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            tensors[f"mtp.{norm}.weight"] = draw.normal(hidden, scale=0.2)
        tensors |= _feed_forward_and_norms(draw, "mtp.layers.0", geometry)
        tensors |= _attention(draw, "mtp.layers.0.self_attn", geometry)
    return tensors


def _feed_forward_and_norms(draw: _Random, layer: str, geometry: TargetGeometry) -> dict[str, Tensor]:
    hidden, experts = geometry.hidden_size, geometry.experts
    if experts is None:
        return _mlp_and_norms(draw, layer, hidden, geometry.intermediate_size, norm_mean=0.0)
    tensors = _mlp_and_norms(draw, layer, hidden, experts.shared_width, norm_mean=0.0)
    tensors = {name.replace(".mlp.", ".mlp.shared_expert."): tensor for name, tensor in tensors.items()}
    tensors[f"{layer}.mlp.gate.weight"] = draw.linear(experts.count, hidden, gain=2.0)
    tensors[f"{layer}.mlp.shared_expert_gate.weight"] = draw.linear(1, hidden)
    gate_up = draw.normal(experts.count, 2 * experts.width, hidden, scale=hidden**-0.5)
    down = draw.normal(experts.count, hidden, experts.width, scale=2.0 * experts.width**-0.5)
    name = f"{layer}.mlp.experts"
    if experts.mtp_fused if layer.startswith("mtp.") else experts.fused:
        return tensors | {f"{name}.gate_up_proj": gate_up, f"{name}.down_proj": down}
    for expert in range(experts.count):
        gate, up = gate_up[expert].chunk(2)
        tensors[f"{name}.{expert}.gate_proj.weight"] = gate.clone()
        tensors[f"{name}.{expert}.up_proj.weight"] = up.clone()
        tensors[f"{name}.{expert}.down_proj.weight"] = down[expert].clone()
    return tensors


def _mlp_and_norms(draw: _Random, layer: str, hidden: int, width: int, norm_mean: float) -> dict[str, Tensor]:
    return {
        f"{layer}.input_layernorm.weight": draw.normal(hidden, scale=0.2) + norm_mean,
        f"{layer}.post_attention_layernorm.weight": draw.normal(hidden, scale=0.2) + norm_mean,
        f"{layer}.mlp.gate_proj.weight": draw.linear(width, hidden),
        f"{layer}.mlp.up_proj.weight": draw.linear(width, hidden),
        f"{layer}.mlp.down_proj.weight": draw.linear(hidden, width),
    }


def _attention(draw: _Random, prefix: str, geometry: TargetGeometry) -> dict[str, Tensor]:
    hidden, size = geometry.hidden_size, geometry.head_dim
    queries, keys = geometry.num_heads * size, geometry.num_kv_heads * size
    return {
        f"{prefix}.q_proj.weight": draw.linear(2 * queries, hidden),
        f"{prefix}.k_proj.weight": draw.linear(keys, hidden),
        f"{prefix}.v_proj.weight": draw.linear(keys, hidden),
        f"{prefix}.o_proj.weight": draw.linear(hidden, queries),
        f"{prefix}.q_norm.weight": draw.normal(size, scale=0.2),
        f"{prefix}.k_norm.weight": draw.normal(size, scale=0.2),
    }


def _gated_delta_net(draw: _Random, prefix: str, geometry: TargetGeometry) -> dict[str, Tensor]:
    hidden, heads = geometry.hidden_size, geometry.value_heads
    keys, values = geometry.key_heads * geometry.key_head_dim, heads * geometry.value_head_dim
    channels = 2 * keys + values
    return {
        f"{prefix}.in_proj_qkv.weight": draw.linear(channels, hidden),
        f"{prefix}.in_proj_z.weight": draw.linear(values, hidden),
        f"{prefix}.in_proj_a.weight": draw.linear(heads, hidden),
        f"{prefix}.in_proj_b.weight": draw.linear(heads, hidden),
        f"{prefix}.conv1d.weight": draw.normal(channels, 1, geometry.conv_kernel_size, scale=0.5),
        f"{prefix}.A_log": draw.uniform(heads, 0.5, 8.0).log(),
        f"{prefix}.dt_bias": draw.uniform(heads, -4.0, -1.0),
        f"{prefix}.norm.weight": draw.normal(geometry.value_head_dim, scale=0.2) + 1.0,
        f"{prefix}.out_proj.weight": draw.linear(hidden, values),
    }


def _dflash2_tensors(target: TargetGeometry, geometry: DraftGeometry) -> dict[str, Tensor]:
    draw = _Random(geometry.seed, target.dtype)
    hidden, size, prefix = target.hidden_size, geometry.head_dim, geometry.prefix
    queries, keys = geometry.num_heads * size, geometry.num_kv_heads * size
    selector = f"{prefix}candidate_selector"
    tensors = {
        f"{prefix}fc.weight": draw.linear(hidden, len(geometry.target_layer_ids) * hidden),
        f"{prefix}hidden_norm.weight": draw.normal(hidden, scale=0.2) + 1.0,
        f"{prefix}norm.weight": draw.normal(hidden, scale=0.2) + 1.0,
        f"{selector}.hidden_projection.weight": draw.linear(geometry.rank, hidden),
    }
    for side in ("predecessor", "successor"):
        name = f"{selector}.{side}_codebook{geometry.codebook_suffix}"
        tensors[name] = draw.normal(target.vocab_size, geometry.rank, scale=0.8)
    coefficients = 2 * geometry.taps * (hidden // geometry.group_size)
    for index in range(len(geometry.windows)):
        layer = f"{prefix}layers.{index}"
        tensors |= _mlp_and_norms(draw, layer, hidden, geometry.intermediate_size, norm_mean=1.0)
        for name, rows, columns in (
            ("q", queries, hidden),
            ("k", keys, hidden),
            ("v", keys, hidden),
            ("o", hidden, queries),
        ):
            tensors[f"{layer}.self_attn.{name}_proj.weight"] = draw.linear(rows, columns)
            if geometry.attention_bias:
                tensors[f"{layer}.self_attn.{name}_proj.bias"] = draw.normal(rows, scale=0.3)
        for name in ("q", "k"):
            tensors[f"{layer}.self_attn.{name}_norm.weight"] = draw.normal(size, scale=0.2) + 1.0
        for name in ("attention_conv", "mlp_conv"):
            tensors[f"{layer}.{name}.base_kernel"] = draw.normal(2, geometry.taps, hidden, scale=0.6)
            tensors[f"{layer}.{name}.kernel_projection.weight"] = draw.linear(coefficients, hidden, gain=0.4)
    return tensors


def _write_shards(directory: Path, tensors: dict[str, Tensor], count: int) -> None:
    if count == 1:
        save_file(tensors, directory / "model.safetensors")
        return
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(count):
        file = f"model-{shard + 1:05d}-of-{count:05d}.safetensors"
        part = names[shard::count]
        save_file({name: tensors[name] for name in part}, directory / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def _write_tokenizer(file: Path) -> None:
    """Write a tokenizer of the 256 bytes, after three special tokens."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*specials, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    tokenizer.save(str(file))
