"""DFlash2 drafters: what their configs may say, and what is refused (semantics A.1, B.1, B.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dfc.compiler.checkpoint import CheckpointError, is_dflash2, load_dflash2
from dfc.compiler.checkpoint.fields import read_fields
from dfc.compiler.checkpoint.spec import AttentionSpec, RopeSpec
from tests.checkpoint.small import Small, small_drafter, tokenizer

NESTED = "dflash_config"


def retapped(drafter: Small, features: int) -> Small:
    """Give the drafter another number of features."""
    drafter.tensors["fc.weight"] = ("BF16", (8, features * 8))
    return drafter


def relayered(drafter: Small, layers: int) -> Small:
    """Give the drafter another number of layers, all like the first."""
    for name in [name for name in drafter.tensors if name.startswith("layers.1.")]:
        del drafter.tensors[name]
    for name in [name for name in drafter.tensors if name.startswith("layers.0.")]:
        for index in range(layers):
            drafter.tensors[f"layers.{index}.{name.removeprefix('layers.0.')}"] = drafter.tensors[name]
    drafter.config |= {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    return drafter


def test_a_drafter(tmp_path: Path) -> None:
    drafter = small_drafter()
    spec = load_dflash2(drafter.write(tmp_path))
    assert spec.directory == tmp_path
    assert (spec.hidden_size, spec.intermediate_size, spec.vocab_size, spec.num_layers) == (8, 10, 32, 2)
    assert spec.attention == AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=6)
    assert spec.rope == RopeSpec(theta=1e6, rotary_dim=6)
    assert spec.rms_norm_eps == 1e-5
    assert spec.attention_bias is False
    assert (spec.block_size, spec.mask_token_id, spec.num_target_layers) == (8, 30, 4)
    assert spec.target_layer_ids == (0, 1, 3)
    assert spec.sliding_windows == (20, 20)
    assert spec.causal == (False, False)
    assert (spec.conv_kernel_size, spec.conv_group_size) == (3, 4)
    assert (spec.selector_rank, spec.selector_top_k) == (7, 5)
    assert (spec.input_embedding_scale, spec.output_multiplier, spec.final_logit_softcapping) == (1.0, 1.0, None)
    assert (spec.storage_type, spec.prefix) == ("bfloat16", "")
    assert set(spec.tensors) == set(drafter.tensors)


def test_every_nested_field_may_stand_at_top_level(tmp_path: Path) -> None:
    nested, flat = small_drafter(), small_drafter()
    flat.config |= flat.config.pop(NESTED)
    specs = [load_dflash2(drafter.write(tmp_path / name)) for name, drafter in (("a", nested), ("b", flat))]
    for name in ("block_size", "mask_token_id", "target_layer_ids", "conv_kernel_size", "conv_group_size",
                 "selector_rank", "selector_top_k"):  # fmt: skip
        assert getattr(specs[0], name) == getattr(specs[1], name)


@pytest.mark.parametrize(
    ("name", "nested", "top", "wanted"),
    [
        ("block_size", 4, 16, 4),
        ("mask_token_id", 29, 3, 29),
        ("target_layer_ids", [2, 0, 1], [1, 2, 3], (2, 0, 1)),
        ("num_target_layers", 9, 4, 9),
        ("input_embedding_scale", 2.5, 3.5, 2.5),
        ("output_multiplier", 0.25, 2.0, 0.25),
        ("final_logit_softcapping", 20.0, 30.0, 20.0),
        ("selector_top_k", 3, 4, 3),
    ],
)
def test_the_nested_field_wins(tmp_path: Path, name: str, nested: Any, top: Any, wanted: Any) -> None:
    drafter = small_drafter()
    drafter.config[name] = top
    drafter.config[NESTED][name] = nested
    assert getattr(load_dflash2(drafter.write(tmp_path / "both")), name) == wanted
    drafter.config[NESTED][name] = None
    top_only = getattr(load_dflash2(drafter.write(tmp_path / "top")), name)
    assert top_only == (tuple(top) if isinstance(top, list) else top)


def test_block_size_defaults_to_16(tmp_path: Path) -> None:
    drafter = small_drafter()
    del drafter.config[NESTED]["block_size"]
    assert load_dflash2(drafter.write(tmp_path)).block_size == 16


@pytest.mark.parametrize(
    ("layers", "depth", "wanted"),
    [
        (1, 4, (2,)),
        (1, 37, (18,)),
        (2, 36, (1, 33)),
        (5, 36, (1, 9, 17, 25, 33)),
        (5, 64, (1, 16, 31, 46, 61)),
        (5, 32, (1, 8, 15, 22, 29)),
        # Halves go to the even neighbour: 1 + 1.5 and 1 + 4.5.
        (3, 7, (1, 2, 4)),
        (3, 13, (1, 6, 10)),
    ],
)
def test_tapped_layers_derived_from_the_depth(tmp_path: Path, layers: int, depth: int, wanted: tuple[int, ...]) -> None:
    drafter = retapped(relayered(small_drafter(), layers), layers)
    del drafter.config[NESTED]["target_layer_ids"]
    drafter.config["num_target_layers"] = depth
    assert load_dflash2(drafter.write(tmp_path)).target_layer_ids == wanted


def test_one_feature_as_a_bare_number(tmp_path: Path) -> None:
    drafter = retapped(small_drafter(), 1)
    drafter.config[NESTED]["target_layer_ids"] = 2
    assert load_dflash2(drafter.write(tmp_path)).target_layer_ids == (2,)


def test_the_depth_may_be_left_out_beside_tapped_layers(tmp_path: Path) -> None:
    drafter = small_drafter()
    del drafter.config["num_target_layers"]
    assert load_dflash2(drafter.write(tmp_path)).num_target_layers is None


@pytest.mark.parametrize(
    ("is_causal", "causal", "wanted"),
    [
        (False, True, (False, False)),
        (True, False, (True, True)),
        (None, True, (True, True)),
        (None, False, (False, False)),
        (None, None, (True, False)),
    ],
)
def test_causality(tmp_path: Path, is_causal: bool | None, causal: bool | None, wanted: tuple[bool, ...]) -> None:
    drafter = small_drafter()
    drafter.config |= {"is_causal": is_causal, "layer_types": ["sliding_attention", "full_attention"]}
    drafter.config[NESTED]["causal"] = causal
    assert load_dflash2(drafter.write(tmp_path)).causal == wanted


@pytest.mark.parametrize(
    ("top", "nested", "wanted"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, {}, (None, 20)),
        ({"layer_types": ["full_attention"] * 2}, {}, (None, None)),
        ({"layer_types": ["full_attention"] * 2, "sliding_window": None}, {}, (None, None)),
        ({"layer_types": ["sliding_attention"] * 2, "use_sliding_window": False}, {}, (20, 20)),
        ({"layer_types": None}, {}, (20, 20)),
        ({"layer_types": None, "max_window_layers": 1}, {}, (None, 20)),
        ({"layer_types": None, "max_window_layers": 28}, {}, (None, None)),
        ({"layer_types": None, "use_sliding_window": False}, {}, (None, None)),
        ({"layer_types": None, "use_sliding_window": None}, {}, (None, None)),
        ({"layer_types": ["full_attention"] * 2}, {"use_swa": True, "swa_window_size": 12}, (12, 12)),
        ({"layer_types": ["full_attention"] * 2}, {"use_swa": False, "swa_window_size": 12}, (None, None)),
    ],
)
def test_windows(tmp_path: Path, top: dict[str, Any], nested: dict[str, Any], wanted: tuple[int | None, ...]) -> None:
    drafter = small_drafter()
    drafter.config |= top
    drafter.config[NESTED] |= nested
    assert load_dflash2(drafter.write(tmp_path)).sliding_windows == wanted


@pytest.mark.parametrize(
    ("top", "theta"),
    [
        ({"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 7.0}, 5e5),
        ({"rope_parameters": None, "rope_theta": 7}, 7.0),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 7}, 7.0),
        ({"rope_parameters": None}, 1e4),
        ({"rope_parameters": None, "rope_scaling": {"type": "default"}, "rope_theta": 7}, 7.0),
    ],
)
def test_rotary_settings(tmp_path: Path, top: dict[str, Any], theta: float) -> None:
    drafter = small_drafter()
    drafter.config |= top
    assert load_dflash2(drafter.write(tmp_path)).rope == RopeSpec(theta, 6)


@pytest.mark.parametrize("name", ["is_neox_style", "rope_is_neox_style"])
def test_the_built_rotary_layout_may_be_named(tmp_path: Path, name: str) -> None:
    drafter = small_drafter()
    drafter.config[name] = True
    assert load_dflash2(drafter.write(tmp_path)).rope.rotary_dim == 6


def test_the_mask_token_by_its_text(tmp_path: Path) -> None:
    drafter = small_drafter()
    del drafter.config[NESTED]["mask_token_id"]
    drafter.config[NESTED]["mask_token"] = "<blank>"
    drafter.files["tokenizer.json"] = tokenizer(vocabulary=20, added={"<|MASK|>": 21, "<blank>": 22})
    assert load_dflash2(drafter.write(tmp_path)).mask_token_id == 22
    del drafter.config[NESTED]["mask_token"]
    assert load_dflash2(drafter.write(tmp_path)).mask_token_id == 21


def test_the_mask_tokens_number_wins_over_its_text(tmp_path: Path) -> None:
    drafter = small_drafter()
    drafter.config[NESTED]["mask_token"] = "<blank>"
    drafter.files["tokenizer.json"] = tokenizer(vocabulary=20, added={"<blank>": 22})
    assert load_dflash2(drafter.write(tmp_path)).mask_token_id == 30


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"added_tokens": null}', '{"added_tokens": [{}]}',
                                     '{"added_tokens": [{"content": "<|MASK|>", "id": "x"}]}',
                                     '{"added_tokens": [{"content": "<|MASK|>", "id": -1}]}',
                                     '{"added_tokens": [{"content": "other", "id": 1}]}'])  # fmt: skip
def test_a_mask_token_that_nobody_knows(tmp_path: Path, content: str | None) -> None:
    drafter = small_drafter()
    del drafter.config[NESTED]["mask_token_id"]
    drafter.write(tmp_path)
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config.json: mask_token_id is missing and no tokenizer.json .*MASK"):
        load_dflash2(tmp_path)


@pytest.mark.parametrize("cap", [None, 0, 0.0, -1.0])
def test_no_cap(tmp_path: Path, cap: float | None) -> None:
    drafter = small_drafter()
    drafter.config[NESTED]["final_logit_softcapping"] = cap
    assert load_dflash2(drafter.write(tmp_path)).final_logit_softcapping is None


def test_the_prefix_of_some_exports(tmp_path: Path) -> None:
    drafter = small_drafter()
    drafter.tensors = {f"model.{name}": stored for name, stored in drafter.tensors.items()}
    spec = load_dflash2(drafter.write(tmp_path))
    assert spec.prefix == "model."
    assert set(spec.tensors) == set(drafter.tensors)


def test_the_codebooks_suffix_of_some_exports(tmp_path: Path) -> None:
    drafter = small_drafter()
    for side in ("predecessor", "successor"):
        name = f"candidate_selector.{side}_codebook"
        drafter.tensors[f"{name}.weight"] = drafter.tensors.pop(name)
    assert set(load_dflash2(drafter.write(tmp_path)).tensors) == set(drafter.tensors)


def test_biases_are_needed_when_declared(tmp_path: Path) -> None:
    drafter = small_drafter()
    drafter.config["attention_bias"] = True
    with pytest.raises(CheckpointError, match=r"has no tensor layers.0.self_attn.q_proj.bias"):
        load_dflash2(drafter.write(tmp_path / "without"))
    for index in range(2):
        for name, size in (("q", 24), ("k", 12), ("v", 12), ("o", 8)):
            drafter.tensors[f"layers.{index}.self_attn.{name}_proj.bias"] = ("BF16", (size,))
    spec = load_dflash2(drafter.write(tmp_path / "with"))
    assert spec.attention_bias is True
    assert set(spec.tensors) == set(drafter.tensors)


@pytest.mark.parametrize("name", sorted(small_drafter().tensors))
def test_every_tensor_is_needed_in_its_shape(tmp_path: Path, name: str) -> None:
    drafter = small_drafter()
    dtype, shape = drafter.tensors.pop(name)
    with pytest.raises(CheckpointError, match=rf"has no tensor {name}"):
        load_dflash2(drafter.write(tmp_path / "missing"))
    drafter.tensors[name] = (dtype, (*shape, 2))
    with pytest.raises(CheckpointError, match=rf"tensor {name} has shape"):
        load_dflash2(drafter.write(tmp_path / "misshapen"))


@pytest.mark.parametrize("name", ["lm_head.weight", "embed_tokens.weight", "d2t", "t2d", "mask_embedding"])
@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_vocabulary_of_its_own_by_its_tensors(tmp_path: Path, name: str, prefix: str) -> None:
    drafter = small_drafter()
    drafter.tensors = {f"{prefix}{tensor}": stored for tensor, stored in drafter.tensors.items()}
    drafter.tensors[f"{prefix}{name}"] = ("I64", (32,))
    with pytest.raises(CheckpointError, match=rf"has a tensor {prefix}{name}; .* vocabulary of their own"):
        load_dflash2(drafter.write(tmp_path))


def test_a_mask_embedding_of_its_own(tmp_path: Path) -> None:
    drafter = small_drafter()
    drafter.write(tmp_path)
    (tmp_path / "mask_embedding.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"mask_embedding.pt: drafters with a mask embedding of their own"):
        load_dflash2(tmp_path)


def test_the_fields_decide_under_the_first_generations_name(tmp_path: Path) -> None:
    drafter = small_drafter()
    drafter.config["architectures"] = ["DFlashDraftModel"]
    spec = load_dflash2(drafter.write(tmp_path))
    assert is_dflash2(read_fields(tmp_path / "config.json"))
    assert set(spec.tensors) == set(drafter.tensors)


def test_a_drafter_without_its_fields(tmp_path: Path) -> None:
    drafter = small_drafter()
    for name in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
        del drafter.config[NESTED][name]
    with pytest.raises(CheckpointError, match=r"config.json has no field conv_kernel_size"):
        load_dflash2(drafter.write(tmp_path))
    assert not is_dflash2(read_fields(tmp_path / "config.json"))


@pytest.mark.parametrize("name", ["conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"])
@pytest.mark.parametrize("alone", [False, True])
def test_convolution_and_selector_come_whole(tmp_path: Path, name: str, alone: bool) -> None:
    drafter = small_drafter()
    names = {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}
    for other in names - {name} if alone else {name}:
        del drafter.config[NESTED][other]
    with pytest.raises(CheckpointError, match=r"config.json has no field (conv|selector)_\w+"):
        load_dflash2(drafter.write(tmp_path))


# Each case: the change at top level, the change nested, what the message names, and what it says.
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"architectures": ["Other"]}, {}, "architectures", "names Other; drafters of DFlashDraftModel and DFlash2Draft"),
    ({"architectures": None}, {}, "architectures", "names nothing"),
    ({"quantization_config": {"bits": 4}}, {}, "quantization_config", "only plain weights can be built"),
    ({"hidden_act": "relu"}, {}, "hidden_act", "is 'relu'; only 'silu' is supported"),
    ({"is_neox_style": False}, {}, "is_neox_style", "is false; only true is supported"),
    ({"rope_is_neox_style": False}, {}, "rope_is_neox_style", "is false; only true is supported"),
    ({}, {"sample_from_anchor": True}, "dflash_config.sample_from_anchor", "cannot be built"),
    ({"sample_from_anchor": True}, {}, "sample_from_anchor", "cannot be built"),
    ({}, {"attention_sink_bias": True}, "dflash_config.attention_sink_bias", "cannot be built"),
    ({}, {"attention_value_scale": 0.7}, "dflash_config.attention_value_scale", "cannot be built"),
    ({"draft_vocab_size": 16}, {}, "draft_vocab_size", "vocabulary of their own"),
    ({"target_hidden_size": 16}, {}, "target_hidden_size", "cannot be built"),
    ({"has_embed_tokens": True}, {}, "has_embed_tokens", "vocabulary of their own"),
    ({"has_lm_head": True}, {}, "has_lm_head", "vocabulary of their own"),
    ({}, {"block_size": 1}, "dflash_config.block_size", "at least 2 is wanted"),
    ({}, {"conv_kernel_size": 0}, "dflash_config.conv_kernel_size", "at least 1 is wanted"),
    ({}, {"conv_group_size": 3}, "dflash_config.conv_group_size", "is 3, which does not divide"),
    ({}, {"selector_top_k": 33}, "dflash_config.selector_top_k", "is 33, more than the vocabulary's 32"),
    ({}, {"mask_token_id": -1}, "dflash_config.mask_token_id", "at least 0 is wanted"),
    ({}, {"mask_token_id": "30"}, "dflash_config.mask_token_id", "where a whole number is wanted"),
    ({}, {"target_layer_ids": []}, "dflash_config.target_layer_ids", "is empty"),
    ({}, {"target_layer_ids": [0, 1.5]}, "dflash_config.target_layer_ids", "list of whole numbers is wanted"),
    ({"num_target_layers": None}, {"target_layer_ids": None}, "num_target_layers", "has no field"),
    ({}, {"output_multiplier": 0}, "dflash_config.output_multiplier", "where a number above 0 is wanted"),
    ({}, {"output_multiplier": -1.0}, "dflash_config.output_multiplier", "where a number above 0 is wanted"),
    ({"is_causal": None}, {"causal": "yes"}, "dflash_config.causal", "where true or false is wanted"),
    ({"is_causal": None}, {"causal": 1}, "dflash_config.causal", "where true or false is wanted"),
    ({"is_causal": 0}, {}, "is_causal", "where true or false is wanted"),
    ({"layer_types": ["sliding_attention"]}, {}, "layer_types", "has 1 entries for 2 layers"),
    ({"layer_types": ["full_attention", "chunked"]}, {}, "layer_types", "names 'chunked'"),
    ({"sliding_window": None}, {}, "sliding_window", "has no field"),
    ({"sliding_window": 0}, {}, "sliding_window", "at least 1 is wanted"),
    ({}, {"use_swa": True}, "swa_window_size", "has no field"),
    ({"rope_parameters": {"rope_type": "su"}}, {}, "rope_parameters.rope_type", "is 'su'; default, linear"),
    ({"rope_scaling": {"type": "linear"}}, {}, "rope_scaling.factor", "has no field"),
    ({"rope_scaling": {"factor": 2.0}}, {}, "rope_scaling.factor", "no rope_type says how it scales"),
    ({"head_dim": 5}, {}, "rope_parameters", "5 rotated of 5 channels"),
    ({"num_key_value_heads": 3}, {}, "num_key_value_heads", "does not divide num_attention_heads 4"),
    ({"num_hidden_layers": 10**9}, {}, "num_hidden_layers", "at most 4096 is wanted"),
    ({"dflash_config": [3]}, {}, "dflash_config", "where an object is wanted"),
]


@pytest.mark.parametrize(
    ("top", "nested", "field", "complaint"), REFUSED, ids=[f"{case[2]}-{i}" for i, case in enumerate(REFUSED)]
)
def test_refusals_name_file_and_field(
    tmp_path: Path, top: dict[str, Any], nested: dict[str, Any], field: str, complaint: str
) -> None:
    drafter = small_drafter()
    drafter.config[NESTED] |= nested
    drafter.config |= top
    if "head_dim" in top:
        for name in [name for name in drafter.tensors if "self_attn" in name]:
            _, shape = drafter.tensors[name]
            drafter.tensors[name] = ("BF16", tuple(size * 5 // 6 if size != 8 else size for size in shape))
    with pytest.raises(CheckpointError) as raised:
        load_dflash2(drafter.write(tmp_path))
    message = str(raised.value)
    assert str(tmp_path / "config.json") in message
    assert field in message
    assert complaint in message
    assert "\n" not in message
