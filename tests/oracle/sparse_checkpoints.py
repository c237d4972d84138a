"""Checkpoints of published sizes whose weights are holes: headers are real, bytes take no disk."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]

HIDDEN, WIDTH, VOCABULARY, LAYERS = 5120, 17408, 248320, 64


def write_27b_target(directory: Path, shards: int = 15, layers: int = LAYERS) -> Path:
    """Write a target of the 27B geometry (semantics C and E) inside the vision wrapper, with an MTP head.

    Fewer `layers` make a slice of it: every fourth one is attention.
    """
    directory.mkdir(parents=True)
    text_config = {
        "model_type": "qwen3_5_text",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "vocab_size": VOCABULARY,
        "num_hidden_layers": layers,
        "full_attention_interval": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "hidden_act": "silu",
        "attn_output_gate": True,
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "eos_token_id": 248046,
    }
    architecture = "Qwen3_5ForConditionalGeneration"
    config = {"architectures": [architecture], "model_type": "qwen3_5", "text_config": text_config}
    (directory / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    shapes = _target_shapes(layers)
    names = list(shapes)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]
        write_sparse(directory / file, {name: shapes[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return directory


def write_27b_dflash2(directory: Path, target_layers: int = LAYERS) -> Path:
    """Write its published drafter's geometry (semantics C); a target of few layers is tapped at all of them."""
    directory.mkdir(parents=True)
    layers = 5
    taps = [5, 19, 33, 47, 61] if target_layers == LAYERS else list(range(target_layers))
    config: dict[str, Any] = {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "vocab_size": VOCABULARY,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_target_layers": target_layers,
        "layer_types": ["sliding_attention"] * layers,
        "sliding_window": 2048,
        "use_sliding_window": True,
        "is_causal": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7},
        "dflash_config": {
            "block_size": 8,
            "mask_token_id": 248070,
            "target_layer_ids": taps,
            "conv_kernel_size": 2,
            "conv_group_size": 16,
            "selector_rank": 256,
            "selector_top_k": 16,
        },
    }
    (directory / "config.json").write_text(json.dumps(config))
    shapes: Shapes = {
        "fc.weight": (HIDDEN, len(taps) * HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "candidate_selector.hidden_projection.weight": (256, HIDDEN),
        "candidate_selector.predecessor_codebook": (VOCABULARY, 256),
        "candidate_selector.successor_codebook": (VOCABULARY, 256),
    }
    for index in range(layers):
        layer = f"layers.{index}"
        shapes |= _mlp_and_norms(layer)
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (4096, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": (1024, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": (1024, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": (HIDDEN, 4096),
            f"{layer}.self_attn.q_norm.weight": (128,),
            f"{layer}.self_attn.k_norm.weight": (128,),
        }
        for name in ("attention_conv", "mlp_conv"):
            shapes[f"{layer}.{name}.base_kernel"] = (2, 2, HIDDEN)
            shapes[f"{layer}.{name}.kernel_projection.weight"] = (2 * 2 * HIDDEN // 16, HIDDEN)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    assert target_layers != LAYERS or parameters == 1_924_404_480, "the published parameter count"
    write_sparse(directory / "model.safetensors", shapes)
    return directory


def write_sparse(file: Path, shapes: Shapes) -> None:
    """Write a bfloat16 safetensors file with a real header and a hole for a body."""
    header: dict[str, Any] = {}
    position = 0
    for name, shape in shapes.items():
        end = position + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [position, end]}
        position = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with file.open("wb") as stream:
        stream.write(len(encoded).to_bytes(8, "little") + encoded)
        stream.truncate(8 + len(encoded) + position)


def _target_shapes(layers: int) -> Shapes:
    prefix = "model.language_model."
    shapes: Shapes = {
        f"{prefix}embed_tokens.weight": (VOCABULARY, HIDDEN),
        f"{prefix}norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "mtp.fc.weight": (HIDDEN, 2 * HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": (HIDDEN,),
        "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
        "mtp.norm.weight": (HIDDEN,),
        **_mlp_and_norms("mtp.layers.0"),
        **_attention("mtp.layers.0.self_attn"),
    }
    for index in range(layers):
        layer = f"{prefix}layers.{index}"
        shapes |= _mlp_and_norms(layer)
        shapes |= _attention(f"{layer}.self_attn") if index % 4 == 3 else _gated_delta_net(f"{layer}.linear_attn")
    return shapes


def _mlp_and_norms(layer: str) -> Shapes:
    return {
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.mlp.gate_proj.weight": (WIDTH, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (WIDTH, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, WIDTH),
    }


def _attention(prefix: str) -> Shapes:
    return {
        f"{prefix}.q_proj.weight": (2 * 24 * 256, HIDDEN),
        f"{prefix}.k_proj.weight": (4 * 256, HIDDEN),
        f"{prefix}.v_proj.weight": (4 * 256, HIDDEN),
        f"{prefix}.o_proj.weight": (HIDDEN, 24 * 256),
        f"{prefix}.q_norm.weight": (256,),
        f"{prefix}.k_norm.weight": (256,),
    }


def _gated_delta_net(prefix: str) -> Shapes:
    return {
        f"{prefix}.in_proj_qkv.weight": (10240, HIDDEN),
        f"{prefix}.in_proj_z.weight": (6144, HIDDEN),
        f"{prefix}.in_proj_a.weight": (48, HIDDEN),
        f"{prefix}.in_proj_b.weight": (48, HIDDEN),
        f"{prefix}.conv1d.weight": (10240, 1, 4),
        f"{prefix}.A_log": (48,),
        f"{prefix}.dt_bias": (48,),
        f"{prefix}.norm.weight": (128,),
        f"{prefix}.out_proj.weight": (HIDDEN, 6144),
    }
