"""Qwen3.5-class text targets, dense or mixtures of experts, alone or inside the vision wrapper (semantics D and E)."""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

from dfc.compiler.checkpoint.common import MAX_LAYERS, read_attention, real_vocabulary, tokenizer_end_ids
from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.expected import Shapes, mtp_shapes, target_shapes
from dfc.compiler.checkpoint.fields import Fields, read_fields
from dfc.compiler.checkpoint.mixture import fuse_experts, read_mixture
from dfc.compiler.checkpoint.quantisation.read import read_method, take_tensors
from dfc.compiler.checkpoint.rope import read_rope
from dfc.compiler.checkpoint.safetensors_index import TensorIndex, read_index
from dfc.compiler.checkpoint.spec import (
    AttentionSpec,
    DenseSpec,
    FeedForwardSpec,
    GatedDeltaNetSpec,
    LayerType,
    MixtureSpec,
    MTPSpec,
    TargetSpec,
)

DENSE = ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration")
MIXTURE = ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration")
"""Names of the architecture alone and inside the vision wrapper."""

DEFAULT_HEAD_DIM = 256


def load_target(directory: Path) -> TargetSpec:
    """Read and check a target checkpoint; only headers of the weight files are read.

    Raises:
        CheckpointError: something in it does not fit.
    """
    top = read_fields(directory / "config.json")
    architecture = _architecture(top)
    with_vision = architecture in (DENSE[1], MIXTURE[1])
    config = top.section("text_config") if with_vision else top
    _check_supported(config)
    index = read_index(directory)
    method = read_method(directory, top, config)
    prefix = "model.language_model." if with_vision else "model."
    hidden_size, vocab_size = config.integer("hidden_size"), config.integer("vocab_size")
    feed_forward = _feed_forward(config, architecture)
    if method is not None and isinstance(feed_forward, MixtureSpec):
        raise CheckpointError(f"{directory} is quantised; a mixture of experts can be built from plain weights only")
    layer_types = _layer_types(config)
    attention = read_attention(config, default_head_dim=DEFAULT_HEAD_DIM)
    gated_delta_net = _gated_delta_net(config)
    # In the wrapper the outer field is the model's own. A head that is stored all the same is the one to use, as in
    # transformers: if it equals the embedding nothing changes, and if not the field is wrong.
    may_tie = top.first("tie_word_embeddings", config).boolean("tie_word_embeddings", True)
    tied = may_tie and "lm_head.weight" not in index
    shapes = target_shapes(
        prefix=prefix,
        hidden_size=hidden_size,
        feed_forward=feed_forward,
        vocab_size=vocab_size,
        layer_types=layer_types,
        attention=attention,
        gated_delta_net=gated_delta_net,
        separate_head=not tied,
    )
    mtp, head_shapes = _mtp(config, index, hidden_size, feed_forward, attention)
    stored_shapes, computed = fuse_experts(index, shapes | head_shapes)
    tensors, quantised = take_tensors(index, method, stored_shapes)
    storage_type = tensors[f"{prefix}embed_tokens.weight"].dtype
    return TargetSpec(
        family="qwen3_5",
        directory=directory,
        architecture=architecture,
        prefix=prefix,
        head=f"{prefix}embed_tokens.weight" if tied else "lm_head.weight",
        hidden_size=hidden_size,
        feed_forward=feed_forward,
        vocab_size=vocab_size,
        candidate_vocab_size=real_vocabulary(directory, vocab_size),
        layer_types=layer_types,
        attention=attention,
        rope=read_rope(
            config, attention.head_dim, default_theta=10_000.0, default_fraction=0.25, default_positions=32_768
        ),
        gated_delta_net=gated_delta_net,
        rms_norm_eps=config.positive("rms_norm_eps", 1e-6),
        storage_type=storage_type,
        eos_token_ids=_eos_token_ids(directory, top, config, vocab_size),
        mtp=mtp,
        tensors=tensors,
        quantised=quantised,
        computed=computed,
    )


def _architecture(top: Fields) -> str:
    architectures = top.texts("architectures", ())
    for architecture in (*DENSE, *MIXTURE):
        if architecture in architectures:
            model_type = top.text("model_type", "")
            if model_type.startswith("qwen3_5_moe") and architecture not in MIXTURE:
                raise top.error("model_type", f"is {model_type!r}, but architectures names {architecture}")
            return architecture
    named = ", ".join(architectures) or "nothing"
    raise top.error("architectures", f"names {named}; targets of {', '.join((*DENSE, *MIXTURE))} can be built")


def _feed_forward(config: Fields, architecture: str) -> FeedForwardSpec:
    return read_mixture(config) if architecture in MIXTURE else DenseSpec(config.integer("intermediate_size"))


def _check_supported(config: Fields) -> None:
    config.require("hidden_act", "silu", "silu")
    config.require("attention_bias", False, False)
    config.require("attn_output_gate", True, True)
    config.require("mtp_use_dedicated_embeddings", False, False)


def _layer_types(config: Fields) -> tuple[LayerType, ...]:
    count = config.integer("num_hidden_layers", most=MAX_LAYERS)
    if "layer_types" in config:
        names = config.texts("layer_types")
        if len(names) != count:
            raise config.error("layer_types", f"has {len(names)} entries for {count} layers")
    else:
        interval = config.integer("full_attention_interval", 4)
        names = tuple("linear_attention" if (i + 1) % interval else "full_attention" for i in range(count))
    for name in names:
        if name not in get_args(LayerType):
            raise config.error("layer_types", f"names {name!r}; {' and '.join(get_args(LayerType))} can be built")
    return cast("tuple[LayerType, ...]", names)


def _gated_delta_net(config: Fields) -> GatedDeltaNetSpec:
    geometry = GatedDeltaNetSpec(
        num_key_heads=config.integer("linear_num_key_heads"),
        num_value_heads=config.integer("linear_num_value_heads"),
        key_head_dim=config.integer("linear_key_head_dim"),
        value_head_dim=config.integer("linear_value_head_dim"),
        conv_kernel_size=config.integer("linear_conv_kernel_dim", 4, least=2),
    )
    if geometry.num_value_heads % geometry.num_key_heads:
        raise config.error(
            "linear_num_key_heads",
            f"is {geometry.num_key_heads}, which does not divide linear_num_value_heads {geometry.num_value_heads}",
        )
    return geometry


def _mtp(
    config: Fields, index: TensorIndex, hidden_size: int, feed_forward: FeedForwardSpec, attention: AttentionSpec
) -> tuple[MTPSpec | None, Shapes]:
    """Return the head when the config declares it and any of its tensors is there: some exports leave it out."""
    layers = config.integer("mtp_num_hidden_layers", 0, least=0)
    if not layers or not any(name.startswith("mtp.") for name in index.names):
        return None, {}
    if layers > 1:
        raise config.error("mtp_num_hidden_layers", f"is {layers}; a head of one layer can be built")
    shapes = mtp_shapes(num_layers=layers, hidden_size=hidden_size, feed_forward=feed_forward, attention=attention)
    return MTPSpec(layers), shapes


def _eos_token_ids(directory: Path, top: Fields, config: Fields, vocab_size: int) -> tuple[int, ...]:
    """Return what the generation config names, else the config, and the tokenizer's own end token."""
    generation = directory / "generation_config.json"
    sources = [read_fields(generation)] if generation.exists() else []
    named: tuple[int, ...] = ()
    for fields in (*sources, top, config):
        if "eos_token_id" in fields:
            named = fields.integers("eos_token_id")
            for token_id in named:
                if not 0 <= token_id < vocab_size:
                    raise fields.error(
                        "eos_token_id", f"names {token_id}, which is not in the vocabulary of {vocab_size}"
                    )
            break
    own = (token_id for token_id in tokenizer_end_ids(directory) if token_id < vocab_size)
    return tuple(dict.fromkeys((*named, *own)))
