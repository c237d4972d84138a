"""What the configs of DFlash and DFlash2 have in common: drafters of a block over the target's features (semantics A.1
and A.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dfc.compiler.checkpoint.common import MAX_LAYERS, read_attention
from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.expected import Shapes, block_drafter_shapes
from dfc.compiler.checkpoint.fields import Fields, read_fields
from dfc.compiler.checkpoint.rope import read_rope
from dfc.compiler.checkpoint.safetensors_index import TensorIndex, read_index
from dfc.compiler.checkpoint.spec import DFlashSpec

ARCHITECTURES = ("DFlashDraftModel", "DFlash2DraftModel")
"""Publishers name either; the fields tell the two apart."""

DEFAULT_BLOCK_SIZE = 16
DEFAULT_HEAD_DIM = 128
DEFAULT_MASK_TOKEN = "<|MASK|>"

OWN_MASK_EMBEDDING = "mask_embedding.pt"

DFLASH2_FIELDS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
_OWN_VOCABULARY = ("draft_vocab_size", "target_hidden_size", "has_embed_tokens", "has_lm_head")
_OWN_TENSORS = ("lm_head.weight", "embed_tokens.weight", "d2t", "t2d", "mask_embedding")


class LayeredFields:
    """Fields that older drafters keep at top level and newer ones nest: the nested one wins (semantics A.1)."""

    def __init__(self, top: Fields) -> None:
        self._top = top
        self._nested = top.section("dflash_config")

    def of(self, name: str) -> Fields:
        """Return the section that holds a field."""
        return self._nested.first(name, self._top)

    def __contains__(self, name: str) -> bool:
        return name in self.of(name)


@dataclass(frozen=True)
class BlockDrafterConfig:
    """A checkpoint that is a drafter of this layout: its config, its tensors, and the prefix of their names."""

    directory: Path
    top: Fields
    fields: LayeredFields
    index: TensorIndex
    prefix: str


def is_block_drafter(top: Fields) -> bool:
    """Return whether a config is one of DFlash or DFlash2."""
    return any(architecture in ARCHITECTURES for architecture in top.texts("architectures", ()))


def has_dflash2_fields(top: Fields) -> bool:
    """Return whether a config has any of the fields that DFlash2 adds to DFlash."""
    fields = LayeredFields(top)
    return any(name in fields for name in DFLASH2_FIELDS)


def open_block_drafter(directory: Path) -> BlockDrafterConfig:
    """Read config and tensor headers, and refuse the variants that cannot be built.

    Raises:
        CheckpointError: it is one of them, or damaged.
    """
    top = read_fields(directory / "config.json")
    fields = LayeredFields(top)
    _check_supported(top, fields)
    index = read_index(directory)
    prefix = "model." if "model.fc.weight" in index else ""
    return BlockDrafterConfig(directory, top, fields, index, prefix)


def read_block_drafter(
    config: BlockDrafterConfig, own_shapes: Callable[[int], Shapes] = lambda layers: {}
) -> DFlashSpec:
    """Read and check what every such drafter has; `own_shapes` gives the tensors beyond, for the number of layers.

    Raises:
        CheckpointError: something in it does not fit.
    """
    top, fields, prefix = config.top, config.fields, config.prefix
    attention = read_attention(top, default_head_dim=DEFAULT_HEAD_DIM)
    hidden_size, vocab_size = top.integer("hidden_size"), top.integer("vocab_size")
    intermediate_size = top.integer("intermediate_size")
    num_layers = top.integer("num_hidden_layers", most=MAX_LAYERS)
    bias = top.boolean("attention_bias", False)
    target_layer_ids = _target_layer_ids(fields, num_layers)
    shapes = block_drafter_shapes(
        prefix=prefix,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_layers=num_layers,
        num_features=len(target_layer_ids),
        attention=attention,
        attention_bias=bias,
    )
    tensors = config.index.take(shapes | own_shapes(num_layers))
    _refuse_own_vocabulary(config.index, prefix)
    windows = _sliding_windows(top, fields, num_layers)
    depth = fields.of("num_target_layers")
    cap = fields.of("final_logit_softcapping").number("final_logit_softcapping", 0.0)
    return DFlashSpec(
        directory=config.directory,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        attention=attention,
        rope=read_rope(top, attention.head_dim, default_theta=10_000.0, default_fraction=1.0, default_positions=None),
        rms_norm_eps=top.positive("rms_norm_eps", 1e-6),
        attention_bias=bias,
        num_layers=num_layers,
        block_size=fields.of("block_size").integer("block_size", DEFAULT_BLOCK_SIZE, least=2),
        mask_token_id=_mask_token_id(config.directory, fields),
        num_target_layers=depth.integer("num_target_layers") if "num_target_layers" in depth else None,
        target_layer_ids=target_layer_ids,
        sliding_windows=windows,
        causal=_causal(top, fields, windows),
        input_embedding_scale=fields.of("input_embedding_scale").number("input_embedding_scale", 1.0),
        # Above 0, or the largest logits would not be the largest scores.
        output_multiplier=fields.of("output_multiplier").positive("output_multiplier", 1.0),
        final_logit_softcapping=cap if cap > 0 else None,
        storage_type=tensors[f"{prefix}fc.weight"].dtype,
        prefix=prefix,
        tensors=tensors,
    )


def _check_supported(top: Fields, fields: LayeredFields) -> None:
    if not is_block_drafter(top):
        named = ", ".join(top.texts("architectures", ())) or "nothing"
        raise top.error("architectures", f"names {named}; drafters of {' and '.join(ARCHITECTURES)} can be built")
    top.refuse("quantization_config", "says that the weights are quantised; only plain weights can be built")
    top.require("hidden_act", "silu", "silu")
    for name in ("is_neox_style", "rope_is_neox_style"):
        top.require(name, True, True)
    for name in ("sample_from_anchor", "attention_sink_bias", "attention_value_scale"):
        fields.of(name).refuse(name, "is set; drafters of that layout cannot be built")
    for name in _OWN_VOCABULARY:
        fields.of(name).refuse(name, "is set; drafters with a vocabulary of their own cannot be built")


def _refuse_own_vocabulary(index: TensorIndex, prefix: str) -> None:
    for name in _OWN_TENSORS:
        for full in (name, f"{prefix}{name}"):
            if full in index:
                raise CheckpointError(
                    f"{index.directory} has a tensor {full}; drafters with a vocabulary of their own cannot be built"
                )
    if (index.directory / OWN_MASK_EMBEDDING).exists():
        raise CheckpointError(
            f"{index.directory / OWN_MASK_EMBEDDING}: drafters with a mask embedding of their own cannot be built"
        )


def _target_layer_ids(fields: LayeredFields, num_layers: int) -> tuple[int, ...]:
    section = fields.of("target_layer_ids")
    if "target_layer_ids" in section:
        layers = section.integers("target_layer_ids")
        if not layers:
            raise section.error("target_layer_ids", "is empty")
        return layers
    depth = fields.of("num_target_layers").integer("num_target_layers")
    if num_layers == 1:
        return (depth // 2,)
    return tuple(round(1 + i * (depth - 4) / (num_layers - 1)) for i in range(num_layers))


def _mask_token_id(directory: Path, fields: LayeredFields) -> int:
    section = fields.of("mask_token_id")
    if "mask_token_id" in section:
        return section.integer("mask_token_id", least=0)
    token = fields.of("mask_token").text("mask_token", DEFAULT_MASK_TOKEN)
    try:
        tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        token_id = next(added["id"] for added in tokenizer["added_tokens"] if added["content"] == token)
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RecursionError):
        token_id = None
    if type(token_id) is not int or token_id < 0:
        raise section.error("mask_token_id", f"is missing and no tokenizer.json beside it knows {token!r}")
    return token_id


def _sliding_windows(top: Fields, fields: LayeredFields, num_layers: int) -> tuple[int | None, ...]:
    """Return each layer's window in tokens, None for full attention."""
    use_swa = fields.of("use_swa")
    if use_swa.boolean("use_swa", False):
        return (fields.of("swa_window_size").integer("swa_window_size"),) * num_layers
    if "layer_types" in top:
        names = top.texts("layer_types")
        if len(names) != num_layers:
            raise top.error("layer_types", f"has {len(names)} entries for {num_layers} layers")
        for name in names:
            if name not in ("full_attention", "sliding_attention"):
                raise top.error("layer_types", f"names {name!r}; full_attention and sliding_attention can be built")
        slides = [name == "sliding_attention" for name in names]
    else:
        # With the switch on, layers from max_window_layers upwards slide.
        first = top.integer("max_window_layers", 0, least=0)
        switched_on = top.boolean("use_sliding_window", False)
        slides = [switched_on and index >= first for index in range(num_layers)]
    if not any(slides):
        return (None,) * num_layers
    window = top.integer("sliding_window")
    return tuple(window if sliding else None for sliding in slides)


def _causal(top: Fields, fields: LayeredFields, windows: tuple[int | None, ...]) -> tuple[bool, ...]:
    """Resolve causality: ``is_causal``, else ``dflash_config.causal``, else sliding layers only (semantics A.1)."""
    for name, section in (("is_causal", fields.of("is_causal")), ("causal", fields.of("causal"))):
        if name in section:
            return (section.boolean(name),) * len(windows)
    return tuple(window is not None for window in windows)
