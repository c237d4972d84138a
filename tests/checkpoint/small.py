"""The smallest checkpoints that load, as tables a test changes before it writes them.

Shapes stand here as numbers, on purpose: they are what the tables of `expected.py` are checked against.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.checkpoint.sparse import write_sparse_safetensors

_H, _WIDTH, _V = 8, 12, 32

Shapes = dict[str, tuple[int, ...]]


@dataclass
class Small:
    """A checkpoint not yet written: its config, its tensors, and other JSON files beside them."""

    config: dict[str, Any]
    tensors: dict[str, tuple[str, tuple[int, ...]]]
    files: dict[str, Any]

    def write(self, directory: Path) -> Path:
        """Write it to `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config))
        for name, content in self.files.items():
            (directory / name).write_text(json.dumps(content))
        write_sparse_safetensors(directory / "model.safetensors", self.tensors)
        return directory

    def retype(self, name: str, dtype: str) -> None:
        """Store a tensor as another type."""
        self.tensors[name] = (dtype, self.tensors[name][1])


def small_target(*, prefix: str = "model.", mtp: bool = True) -> Small:
    """Return three Gated DeltaNet layers and one of attention, untied, with an MTP head."""
    config = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": _H,
        "intermediate_size": _WIDTH,
        "vocab_size": _V,
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 3,
        "linear_value_head_dim": 5,
        "linear_conv_kernel_dim": 4,
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
        "tie_word_embeddings": False,
        "mtp_num_hidden_layers": int(mtp),
        "eos_token_id": 3,
    }
    shapes: Shapes = {
        f"{prefix}embed_tokens.weight": (_V, _H),
        f"{prefix}norm.weight": (_H,),
        "lm_head.weight": (_V, _H),
    }
    for index in range(3):
        shapes |= _layer(f"{prefix}layers.{index}") | _linear_attention(f"{prefix}layers.{index}.linear_attn")
    shapes |= _layer(f"{prefix}layers.3") | _self_attention(f"{prefix}layers.3.self_attn")
    if mtp:
        shapes |= {
            "mtp.fc.weight": (_H, 2 * _H),
            "mtp.pre_fc_norm_embedding.weight": (_H,),
            "mtp.pre_fc_norm_hidden.weight": (_H,),
            "mtp.norm.weight": (_H,),
            **_layer("mtp.layers.0"),
            **_self_attention("mtp.layers.0.self_attn"),
        }
    return Small(config, _bfloat16(shapes), {})


def wrapped_target() -> Small:
    """Return the same text model inside the vision wrapper, with a tensor of the vision tower."""
    target = small_target(prefix="model.language_model.")
    text_config = {key: value for key, value in target.config.items() if key != "architectures"}
    target.config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text_config,
        "vision_config": {"hidden_size": 4},
        "tie_word_embeddings": False,
    }
    target.tensors["model.visual.patch_embed.proj.weight"] = ("BF16", (4, 3, 2, 2, 2))
    return target


def small_drafter() -> Small:
    """Return two sliding layers for `small_target`."""
    config = {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": _H,
        "intermediate_size": 10,
        "vocab_size": _V,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "num_target_layers": 4,
        "layer_types": ["sliding_attention"] * 2,
        "sliding_window": 20,
        "use_sliding_window": True,
        "is_causal": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "dflash_config": {
            "block_size": 8,
            "mask_token_id": 30,
            "target_layer_ids": [0, 1, 3],
            "conv_kernel_size": 3,
            "conv_group_size": 4,
            "selector_rank": 7,
            "selector_top_k": 5,
        },
    }
    shapes: Shapes = {
        "fc.weight": (_H, 3 * _H),
        "hidden_norm.weight": (_H,),
        "norm.weight": (_H,),
        "candidate_selector.hidden_projection.weight": (7, _H),
        "candidate_selector.predecessor_codebook": (_V, 7),
        "candidate_selector.successor_codebook": (_V, 7),
    }
    for index in range(2):
        layer = f"layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (_H,),
            f"{layer}.post_attention_layernorm.weight": (_H,),
            f"{layer}.mlp.gate_proj.weight": (10, _H),
            f"{layer}.mlp.up_proj.weight": (10, _H),
            f"{layer}.mlp.down_proj.weight": (_H, 10),
            f"{layer}.self_attn.q_proj.weight": (24, _H),
            f"{layer}.self_attn.k_proj.weight": (12, _H),
            f"{layer}.self_attn.v_proj.weight": (12, _H),
            f"{layer}.self_attn.o_proj.weight": (_H, 24),
            f"{layer}.self_attn.q_norm.weight": (6,),
            f"{layer}.self_attn.k_norm.weight": (6,),
        }
        for conv in ("attention_conv", "mlp_conv"):
            shapes[f"{layer}.{conv}.base_kernel"] = (2, 3, _H)
            shapes[f"{layer}.{conv}.kernel_projection.weight"] = (2 * 3 * 2, _H)
    return Small(config, _bfloat16(shapes), {})


def small_dflash() -> Small:
    """Return the same drafter in the first generation: no convolution and no selector."""
    drafter = small_drafter()
    drafter.config["architectures"] = ["DFlashDraftModel"]
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        del drafter.config["dflash_config"][name]
    for name in list(drafter.tensors):
        if "_conv." in name or "candidate_selector" in name:
            del drafter.tensors[name]
    return drafter


def tokenizer(*, vocabulary: int, added: dict[str, int]) -> dict[str, Any]:
    """Return what a tokenizer.json of `vocabulary` tokens and some added ones holds."""
    return {
        "model": {"type": "BPE", "vocab": {f"t{index}": index for index in range(vocabulary)}, "merges": []},
        "added_tokens": [{"id": token_id, "content": content} for content, token_id in added.items()],
    }


def _bfloat16(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: ("BF16", shape) for name, shape in shapes.items()}


def _layer(layer: str) -> Shapes:
    return {
        f"{layer}.input_layernorm.weight": (_H,),
        f"{layer}.post_attention_layernorm.weight": (_H,),
        f"{layer}.mlp.gate_proj.weight": (_WIDTH, _H),
        f"{layer}.mlp.up_proj.weight": (_WIDTH, _H),
        f"{layer}.mlp.down_proj.weight": (_H, _WIDTH),
    }


def _self_attention(prefix: str) -> Shapes:
    return {
        f"{prefix}.q_proj.weight": (128, _H),
        f"{prefix}.k_proj.weight": (32, _H),
        f"{prefix}.v_proj.weight": (32, _H),
        f"{prefix}.o_proj.weight": (_H, 64),
        f"{prefix}.q_norm.weight": (16,),
        f"{prefix}.k_norm.weight": (16,),
    }


def _linear_attention(prefix: str) -> Shapes:
    return {
        f"{prefix}.in_proj_qkv.weight": (32, _H),
        f"{prefix}.in_proj_z.weight": (20, _H),
        f"{prefix}.in_proj_a.weight": (4, _H),
        f"{prefix}.in_proj_b.weight": (4, _H),
        f"{prefix}.conv1d.weight": (32, 1, 4),
        f"{prefix}.A_log": (4,),
        f"{prefix}.dt_bias": (4,),
        f"{prefix}.norm.weight": (5,),
        f"{prefix}.out_proj.weight": (_H, 20),
    }
