"""DFlash drafters: what sets them apart from DFlash2, and what they share with it (semantics A.1 and A.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dfc.compiler.checkpoint import (
    CheckpointError,
    DFlash2Spec,
    check_fits,
    is_dflash,
    is_dflash2,
    load_dflash,
    load_target,
)
from dfc.compiler.checkpoint.fields import read_fields
from dfc.compiler.checkpoint.spec import AttentionSpec, RopeSpec
from dfc.compiler.models.drafters import load_drafter
from tests.checkpoint.small import small_dflash, small_drafter, small_target

NESTED = "dflash_config"
DFLASH2_FIELDS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


def test_a_drafter(tmp_path: Path) -> None:
    drafter = small_dflash()
    spec = load_dflash(drafter.write(tmp_path))
    assert not isinstance(spec, DFlash2Spec)
    assert spec.directory == tmp_path
    assert (spec.hidden_size, spec.intermediate_size, spec.vocab_size, spec.num_layers) == (8, 10, 32, 2)
    assert spec.attention == AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=6)
    assert spec.rope == RopeSpec(theta=1e6, rotary_dim=6)
    assert (spec.block_size, spec.mask_token_id, spec.num_target_layers) == (8, 30, 4)
    assert spec.target_layer_ids == (0, 1, 3)
    assert (spec.sliding_windows, spec.causal) == ((20, 20), (False, False))
    assert set(spec.tensors) == set(drafter.tensors)
    # Semantics A.2: three tensors and eleven for each layer.
    assert len(spec.tensors) == 3 + 11 * 2


def test_every_nested_field_may_stand_at_top_level(tmp_path: Path) -> None:
    drafter = small_dflash()
    drafter.config |= drafter.config.pop(NESTED)
    spec = load_dflash(drafter.write(tmp_path))
    assert (spec.block_size, spec.mask_token_id, spec.target_layer_ids) == (8, 30, (0, 1, 3))


@pytest.mark.parametrize(
    ("layer_types", "is_causal", "causal", "wanted"),
    [
        (["sliding_attention", "full_attention"], None, None, (True, False)),
        (["sliding_attention", "full_attention"], None, False, (False, False)),
        (["full_attention", "full_attention"], None, True, (True, True)),
        (["full_attention", "sliding_attention"], False, True, (False, False)),
    ],
)
def test_causality(
    tmp_path: Path, layer_types: list[str], is_causal: bool | None, causal: bool | None, wanted: tuple[bool, ...]
) -> None:
    drafter = small_dflash()
    drafter.config |= {"is_causal": is_causal, "layer_types": layer_types}
    drafter.config[NESTED]["causal"] = causal
    assert load_dflash(drafter.write(tmp_path)).causal == wanted


@pytest.mark.parametrize("architecture", ["DFlashDraftModel", "DFlash2DraftModel"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("present", [(), *((name,) for name in DFLASH2_FIELDS), DFLASH2_FIELDS])
def test_the_fields_tell_the_two_apart(
    tmp_path: Path, architecture: str, nested: bool, present: tuple[str, ...]
) -> None:
    drafter = small_dflash()
    drafter.config["architectures"] = [architecture]
    section = drafter.config[NESTED] if nested else drafter.config
    section |= dict.fromkeys(present, 4)
    top = read_fields(drafter.write(tmp_path) / "config.json")
    assert (is_dflash(top), is_dflash2(top)) == (not present, bool(present))


@pytest.mark.parametrize("component", ["dflash", "dflash2"])
def test_the_reader_is_found_by_the_checkpoint(tmp_path: Path, component: str) -> None:
    target = load_target(small_target().write(tmp_path / "target"))
    drafter = {"dflash": small_dflash, "dflash2": small_drafter}[component]()
    found = load_drafter(drafter.write(tmp_path / "draft"), target, None)
    assert (found.component, found.draft_tokens, found.feature_layers) == (component, 7, (0, 1, 3))
    assert set(found.tensors) == set(drafter.tensors)


@pytest.mark.parametrize("architectures", [["Other"], None])
def test_no_kind_of_drafter(tmp_path: Path, architectures: list[str] | None) -> None:
    target = load_target(small_target().write(tmp_path / "target"))
    drafter = small_dflash()
    drafter.config["architectures"] = architectures
    named = "Other" if architectures else "nothing"
    with pytest.raises(
        CheckpointError,
        match=rf"config.json: architectures names {named}; drafters of DFlashDraftModel, DFlash2DraftModel can",
    ):
        load_drafter(drafter.write(tmp_path / "draft"), target, None)


@pytest.mark.parametrize(
    "name",
    [
        "layers.1.attention_conv.base_kernel",
        "layers.0.mlp_conv.kernel_projection.weight",
        "candidate_selector.predecessor_codebook",
        "model.candidate_selector.successor_codebook.weight",
    ],
)
def test_tensors_that_only_dflash2_has(tmp_path: Path, name: str) -> None:
    drafter = small_dflash()
    drafter.tensors[name] = ("BF16", (4,))
    with pytest.raises(CheckpointError, match=rf"config.json: dflash_config has none of .* tensor {name}, which only"):
        load_dflash(drafter.write(tmp_path))


@pytest.mark.parametrize("name", DFLASH2_FIELDS)
def test_a_field_that_only_dflash2_has(tmp_path: Path, name: str) -> None:
    drafter = small_dflash()
    drafter.config[NESTED][name] = 4
    with pytest.raises(CheckpointError, match=rf"config.json: dflash_config.{name} is set, which makes this a DFlash2"):
        load_dflash(drafter.write(tmp_path))


@pytest.mark.parametrize("name", sorted(small_dflash().tensors))
def test_every_tensor_is_needed_in_its_shape(tmp_path: Path, name: str) -> None:
    drafter = small_dflash()
    dtype, shape = drafter.tensors.pop(name)
    with pytest.raises(CheckpointError, match=rf"has no tensor {name}"):
        load_dflash(drafter.write(tmp_path / "missing"))
    drafter.tensors[name] = (dtype, (*shape, 2))
    with pytest.raises(CheckpointError, match=rf"tensor {name} has shape"):
        load_dflash(drafter.write(tmp_path / "misshapen"))


@pytest.mark.parametrize("name", ["lm_head.weight", "embed_tokens.weight", "d2t", "t2d", "mask_embedding"])
def test_a_vocabulary_of_its_own(tmp_path: Path, name: str) -> None:
    drafter = small_dflash()
    drafter.tensors[name] = ("I64", (32,))
    with pytest.raises(CheckpointError, match=rf"has a tensor {name}; .* vocabulary of their own"):
        load_dflash(drafter.write(tmp_path))


@pytest.mark.parametrize(
    ("top", "nested", "complaint"),
    [
        ({}, {"sample_from_anchor": True}, "dflash_config.sample_from_anchor is set"),
        ({}, {"attention_sink_bias": True}, "dflash_config.attention_sink_bias is set"),
        ({"draft_vocab_size": 16}, {}, "draft_vocab_size is set"),
        ({}, {"block_size": 1}, "dflash_config.block_size is 1, where at least 2 is wanted"),
        ({}, {"output_multiplier": -1.0}, "dflash_config.output_multiplier is -1, where a number above 0"),
        ({}, {"target_layer_ids": []}, "dflash_config.target_layer_ids is empty"),
        ({"is_neox_style": False}, {}, "is_neox_style is false; only true is supported"),
    ],
)
def test_refusals_name_file_and_field(
    tmp_path: Path, top: dict[str, Any], nested: dict[str, Any], complaint: str
) -> None:
    drafter = small_dflash()
    drafter.config[NESTED] |= nested
    drafter.config |= top
    with pytest.raises(CheckpointError, match=rf"config.json: {complaint}"):
        load_dflash(drafter.write(tmp_path))


def test_a_layer_that_the_target_does_not_have(tmp_path: Path) -> None:
    target = load_target(small_target().write(tmp_path / "target"))
    drafter = small_dflash()
    drafter.config[NESTED]["target_layer_ids"] = [0, 1, 4]
    with pytest.raises(CheckpointError, match="target_layer_ids names layer 4"):
        check_fits(load_dflash(drafter.write(tmp_path / "draft")), target)
