"""The 35B-A3B geometry as a checkpoint of holes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.oracle.sparse_checkpoints import Shapes, write_sparse

HIDDEN, WIDTH, EXPERTS, LAYERS, VOCABULARY = 2048, 512, 256, 40, 248320


def write_35b_target(directory: Path, shards: int = 16) -> Path:
    """Write a mixture of 256 experts inside the vision wrapper, fused, with an MTP head and an index of the shards."""
    directory.mkdir(parents=True)
    text_config = {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS,
        "full_attention_interval": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": WIDTH,
        "shared_expert_intermediate_size": WIDTH,
        "hidden_act": "silu",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "eos_token_id": 248046,
    }
    architecture = "Qwen3_5MoeForConditionalGeneration"
    config = {"architectures": [architecture], "model_type": "qwen3_5_moe", "text_config": text_config}
    (directory / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    shapes = _shapes()
    names = list(shapes)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]
        write_sparse(directory / file, {name: shapes[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return directory


def _shapes() -> Shapes:
    prefix = "model.language_model."
    shapes: Shapes = {
        f"{prefix}embed_tokens.weight": (VOCABULARY, HIDDEN),
        f"{prefix}norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        "mtp.fc.weight": (HIDDEN, 2 * HIDDEN),
        "mtp.pre_fc_norm_embedding.weight": (HIDDEN,),
        "mtp.pre_fc_norm_hidden.weight": (HIDDEN,),
        "mtp.norm.weight": (HIDDEN,),
        **_mixture_and_norms("mtp.layers.0"),
        **_attention("mtp.layers.0.self_attn"),
    }
    for index in range(LAYERS):
        layer = f"{prefix}layers.{index}"
        shapes |= _mixture_and_norms(layer)
        shapes |= _attention(f"{layer}.self_attn") if index % 4 == 3 else _gated_delta_net(f"{layer}.linear_attn")
    return shapes


def _mixture_and_norms(layer: str) -> Shapes:
    return {
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.mlp.gate.weight": (EXPERTS, HIDDEN),
        f"{layer}.mlp.experts.gate_up_proj": (EXPERTS, 2 * WIDTH, HIDDEN),
        f"{layer}.mlp.experts.down_proj": (EXPERTS, HIDDEN, WIDTH),
        f"{layer}.mlp.shared_expert.gate_proj.weight": (WIDTH, HIDDEN),
        f"{layer}.mlp.shared_expert.up_proj.weight": (WIDTH, HIDDEN),
        f"{layer}.mlp.shared_expert.down_proj.weight": (HIDDEN, WIDTH),
        f"{layer}.mlp.shared_expert_gate.weight": (1, HIDDEN),
    }


def _attention(prefix: str) -> Shapes:
    return {
        f"{prefix}.q_proj.weight": (2 * 16 * 256, HIDDEN),
        f"{prefix}.k_proj.weight": (2 * 256, HIDDEN),
        f"{prefix}.v_proj.weight": (2 * 256, HIDDEN),
        f"{prefix}.o_proj.weight": (HIDDEN, 16 * 256),
        f"{prefix}.q_norm.weight": (256,),
        f"{prefix}.k_norm.weight": (256,),
    }


def _gated_delta_net(prefix: str) -> Shapes:
    return {
        f"{prefix}.in_proj_qkv.weight": (8192, HIDDEN),
        f"{prefix}.in_proj_z.weight": (4096, HIDDEN),
        f"{prefix}.in_proj_a.weight": (32, HIDDEN),
        f"{prefix}.in_proj_b.weight": (32, HIDDEN),
        f"{prefix}.conv1d.weight": (8192, 1, 4),
        f"{prefix}.A_log": (32,),
        f"{prefix}.dt_bias": (32,),
        f"{prefix}.norm.weight": (128,),
        f"{prefix}.out_proj.weight": (HIDDEN, 4096),
    }
