"""Targets: what their configs may say, and what is refused."""

from __future__ import annotations

import json
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from dfc.compiler.checkpoint import CheckpointError, load_target
from dfc.compiler.checkpoint.spec import AttentionSpec, DenseSpec, GatedDeltaNetSpec, MixtureSpec, MTPSpec, RopeSpec
from tests.checkpoint.small import Small, small_target, tokenizer, wrapped_target

DROPPED = object()


def test_a_plain_target(tmp_path: Path) -> None:
    small = small_target()
    spec = load_target(small.write(tmp_path))
    assert spec.family == "qwen3_5"
    assert spec.directory == tmp_path
    assert spec.architecture == "Qwen3_5ForCausalLM"
    assert (spec.prefix, spec.head) == ("model.", "lm_head.weight")
    assert (spec.hidden_size, spec.feed_forward, spec.vocab_size) == (8, DenseSpec(12), 32)
    assert spec.layer_types == ("linear_attention",) * 3 + ("full_attention",)
    assert spec.attention == AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16)
    assert spec.rope == RopeSpec(theta=5e5, rotary_dim=8, positions=64)
    assert spec.gated_delta_net == GatedDeltaNetSpec(2, 4, 3, 5, 4)
    assert (spec.rms_norm_eps, spec.rope.positions) == (1e-5, 64)
    assert spec.storage_type == "bfloat16"
    assert spec.mtp == MTPSpec(num_layers=1)
    assert set(spec.tensors) == set(small.tensors)


def test_the_wrapper_gives_the_same_model_under_other_names(tmp_path: Path) -> None:
    plain = load_target(small_target().write(tmp_path / "plain"))
    wrapped = load_target(wrapped_target().write(tmp_path / "wrapped"))
    assert wrapped.architecture == "Qwen3_5ForConditionalGeneration"
    assert wrapped.prefix == "model.language_model."
    differing = {"directory", "architecture", "prefix", "tensors"}
    for field in fields(plain):
        if field.name not in differing:
            assert getattr(wrapped, field.name) == getattr(plain, field.name), field.name
    assert not any("visual" in name for name in wrapped.tensors)
    assert {name.replace("language_model.", "") for name in wrapped.tensors} == set(plain.tensors)


# Each case: the field outside and inside text_config (None: absent), whether a head is stored, the head wanted.
@pytest.mark.parametrize(
    ("outer", "inner", "stored", "tied"),
    [
        (True, None, False, True),
        (None, True, False, True),
        (None, None, False, True),
        (True, False, False, True),
        (None, None, True, False),
        (False, True, True, False),
        (True, True, True, False),
    ],
)
def test_tied_heads(tmp_path: Path, outer: bool | None, inner: bool | None, stored: bool, tied: bool) -> None:
    small = wrapped_target()
    small.config["tie_word_embeddings"] = outer
    small.config["text_config"]["tie_word_embeddings"] = inner
    if not stored:
        del small.tensors["lm_head.weight"]
    spec = load_target(small.write(tmp_path))
    assert spec.head == ("model.language_model.embed_tokens.weight" if tied else "lm_head.weight")
    assert spec.head in spec.tensors


@pytest.mark.parametrize(("outer", "inner"), [(False, None), (None, False), (False, True)])
def test_an_untied_head_has_to_be_stored(tmp_path: Path, outer: bool | None, inner: bool | None) -> None:
    small = wrapped_target()
    small.config["tie_word_embeddings"] = outer
    small.config["text_config"]["tie_word_embeddings"] = inner
    del small.tensors["lm_head.weight"]
    with pytest.raises(CheckpointError, match=r"has no tensor lm_head.weight"):
        load_target(small.write(tmp_path))


@pytest.mark.parametrize("interval", [4, None])
def test_layer_types_from_an_interval(tmp_path: Path, interval: int | None) -> None:
    small = small_target()
    del small.config["layer_types"]
    small.config["full_attention_interval"] = interval
    assert load_target(small.write(tmp_path)).layer_types == ("linear_attention",) * 3 + ("full_attention",)


@pytest.mark.parametrize(
    ("parameters", "top", "rope"),
    [
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.25}, {}, RopeSpec(1e4, 4)),
        ({"rope_theta": 1e4}, {"partial_rotary_factor": 0.5}, RopeSpec(1e4, 8)),
        ({"rope_theta": 1e4, "partial_rotary_factor": 1.0}, {"rope_theta": 7.0}, RopeSpec(1e4, 16)),
        (None, {"rope_theta": 1e7, "partial_rotary_factor": 0.5}, RopeSpec(1e7, 8)),
        (None, {"rope_theta": 10_000_000}, RopeSpec(1e7, 4)),
        ({"rope_type": "default", "mrope_section": [1, 1, 0], "mrope_interleaved": True}, {}, RopeSpec(1e4, 4)),
    ],
)
def test_rotary_settings(tmp_path: Path, parameters: Any, top: dict[str, Any], rope: RopeSpec) -> None:
    small = small_target()
    small.config |= {"rope_parameters": parameters, **top}
    assert load_target(small.write(tmp_path)).rope == replace(rope, positions=64)


@pytest.mark.parametrize("count", [0, DROPPED])
def test_mtp_tensors_without_a_declaration_are_passed_over(tmp_path: Path, count: object) -> None:
    small = small_target()
    if count is DROPPED:
        del small.config["mtp_num_hidden_layers"]
    else:
        small.config["mtp_num_hidden_layers"] = count
    spec = load_target(small.write(tmp_path))
    assert spec.mtp is None
    assert not any(name.startswith("mtp.") for name in spec.tensors)


def test_a_declared_mtp_head_may_be_left_out_whole(tmp_path: Path) -> None:
    small = small_target(mtp=False)
    small.config["mtp_num_hidden_layers"] = 1
    assert load_target(small.write(tmp_path)).mtp is None


@pytest.mark.parametrize(
    ("generation", "config", "eos"),
    [
        ({"eos_token_id": [5, 6]}, 3, (5, 6)),
        ({"eos_token_id": 5}, 3, (5,)),
        ({}, 3, (3,)),
        (None, [3, 4], (3, 4)),
        (None, None, ()),
    ],
)
def test_end_tokens(tmp_path: Path, generation: Any, config: Any, eos: tuple[int, ...]) -> None:
    small = small_target()
    small.config["eos_token_id"] = config
    if generation is not None:
        small.files["generation_config.json"] = generation
    assert load_target(small.write(tmp_path)).eos_token_ids == eos


@pytest.mark.parametrize("token", ["<end>", {"content": "<end>", "special": True}])
@pytest.mark.parametrize(("named", "eos"), [([5, 6], (5, 6, 7)), ([7, 5], (7, 5))])
def test_the_tokenizers_end_token_ends_too(tmp_path: Path, token: Any, named: list[int], eos: tuple[int, ...]) -> None:
    small = small_target()
    small.files["generation_config.json"] = {"eos_token_id": named}
    small.files["tokenizer_config.json"] = {"eos_token": token}
    small.files["tokenizer.json"] = {
        "model": {"vocab": {"a": 0}},
        "added_tokens": [{"id": 6, "content": "<other>"}, {"id": 7, "content": "<end>"}],
    }
    assert load_target(small.write(tmp_path)).eos_token_ids == eos


@pytest.mark.parametrize("token", [None, "<absent>"])
def test_a_tokenizer_without_an_end_token_adds_none(tmp_path: Path, token: Any) -> None:
    small = small_target()
    small.files["tokenizer_config.json"] = {"eos_token": token}
    small.files["tokenizer.json"] = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 7, "content": "<end>"}]}
    assert load_target(small.write(tmp_path)).eos_token_ids == (3,)


def test_a_damaged_tokenizer_config_is_named(tmp_path: Path) -> None:
    small = small_target()
    small.files["tokenizer_config.json"] = ["eos_token"]
    small.files["tokenizer.json"] = {"model": {"vocab": {"a": 0}}}
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json"):
        load_target(small.write(tmp_path))


@pytest.mark.parametrize(
    ("vocabulary", "added", "rows"),
    [
        (20, {}, 20),
        (20, {"<a>": 20, "<b>": 27}, 28),
        (20, {"<a>": 5}, 20),
        (40, {"<a>": 60}, 32),
    ],
)
def test_rows_that_are_tokens(tmp_path: Path, vocabulary: int, added: dict[str, int], rows: int) -> None:
    small = small_target()
    small.files["tokenizer.json"] = tokenizer(vocabulary=vocabulary, added=added)
    assert load_target(small.write(tmp_path)).candidate_vocab_size == rows


def test_rows_that_are_tokens_of_a_listed_vocabulary(tmp_path: Path) -> None:
    small = small_target()
    small.files["tokenizer.json"] = {"model": {"type": "Unigram", "vocab": [[f"t{i}", -1.0] for i in range(9)]}}
    assert load_target(small.write(tmp_path)).candidate_vocab_size == 9


def test_all_rows_are_tokens_without_a_tokenizer(tmp_path: Path) -> None:
    assert load_target(small_target().write(tmp_path)).candidate_vocab_size == 32


def test_a_tokenizer_of_full_size_takes_no_time(tmp_path: Path) -> None:
    content = tokenizer(vocabulary=248_000, added={"<a>": 248_076})
    content["model"]["merges"] = [f"piece{index} another{index}" for index in range(600_000)]
    small = small_target()
    small.files["tokenizer.json"] = content
    small.write(tmp_path)
    assert (tmp_path / "tokenizer.json").stat().st_size > 20_000_000
    began = time.perf_counter()
    load_target(tmp_path)
    # A second when nothing else runs; the machine may be shared.
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"model": {}}', '{"model": {"vocab": {}}}', '{"model": {"vocab": {"a": "0"}}}',
     '{"model": {"vocab": {"a": Infinity}}}', '{"model": {"vocab": {"a": -3}}}', '{"model": {"vocab": 3}}',
     '{"model": {"vocab": {"a": 0}}, "added_tokens": [{}]}', '{"model": {"vocab": {"a": 0}}, "added_tokens": 3}'],
)  # fmt: skip
def test_a_tokenizer_that_is_none(tmp_path: Path, content: str) -> None:
    small_target().write(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer.json is not a tokenizer"):
        load_target(tmp_path)


@pytest.mark.parametrize("name", ["A_log", "dt_bias", "norm.weight"])
def test_vectors_may_be_float32(tmp_path: Path, name: str) -> None:
    small = small_target()
    small.retype(f"model.layers.0.linear_attn.{name}", "F32")
    spec = load_target(small.write(tmp_path))
    assert spec.storage_type == "bfloat16"
    assert spec.tensors[f"model.layers.0.linear_attn.{name}"].dtype == "float32"


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_a_checkpoint_of_another_type(tmp_path: Path, dtype: str) -> None:
    small = small_target()
    for name in small.tensors:
        small.retype(name, dtype)
    assert load_target(small.write(tmp_path)).storage_type == {"F32": "float32", "F16": "float16"}[dtype]


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "mtp.fc.weight"])
def test_types_may_be_mixed(tmp_path: Path, name: str) -> None:
    """Every tensor is converted on its own."""
    small = small_target()
    small.retype(name, "F32")
    assert load_target(small.write(tmp_path)).tensors[name].dtype == "float32"


@pytest.mark.parametrize("name", sorted(small_target().tensors))
def test_every_tensor_is_needed_in_its_shape(tmp_path: Path, name: str) -> None:
    small = small_target()
    dtype, shape = small.tensors.pop(name)
    with pytest.raises(CheckpointError, match=rf"has no tensor {name}"):
        small.config["tie_word_embeddings"] = False
        load_target(small.write(tmp_path / "missing"))
    small.tensors[name] = (dtype, (*shape, 2))
    with pytest.raises(CheckpointError, match=rf"tensor {name} has shape"):
        load_target(small.write(tmp_path / "misshapen"))


# Each case: the change to the config, what the message names, and what it says.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"architectures": ["LlamaForCausalLM"]}, "architectures", "names LlamaForCausalLM; targets of"),
    ({"architectures": []}, "architectures", "names nothing"),
    ({"architectures": "Qwen3_5ForCausalLM"}, "architectures", "where a list of strings is wanted"),
    ({"model_type": "qwen3_5_moe_text"}, "model_type", "but architectures names Qwen3_5ForCausalLM"),
    ({"architectures": ["Qwen3_5MoeForCausalLM"]}, "num_experts", "has no field num_experts"),
    ({"quantization_config": {"quant_method": "quip"}}, "quantization_config", "is 'quip'; weights quantised by fp8"),
    ({"hidden_act": "gelu"}, "hidden_act", "is 'gelu'; only 'silu' is supported"),
    ({"attention_bias": True}, "attention_bias", "is true; only false is supported"),
    ({"attn_output_gate": False}, "attn_output_gate", "is false; only true is supported"),
    ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings", "is true; only false is supported"),
    ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers", "a head of one layer can be built"),
    ({"mtp_num_hidden_layers": -1}, "mtp_num_hidden_layers", "at least 0 is wanted"),
    ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters.rope_type", "is 'longrope'; default, linear"),
    ({"rope_parameters": {"rope_type": "linear", "factor": 0.5}}, "rope_parameters.factor", "from 1 to 1e+06"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "rope_theta": 1}}, "rope_theta", "yarn needs more than 1"),
    ({"rope_parameters": {"type": "linear"}}, "rope_parameters.factor", "has no field"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling.low_freq_factor", "has no field"),
    (
        {"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}},
        "rope_scaling.high_freq_factor",
        "is 4, not more than low_freq_factor 4",
    ),
    ({"rope_scaling": {"factor": 4}}, "rope_scaling.factor", "is 4, but no rope_type says how it scales"),
    ({"rope_parameters": {"rope_theta": 0}}, "rope_parameters", "gives theta 0"),
    ({"rope_parameters": {"partial_rotary_factor": 0.2}}, "rope_parameters", "3 rotated of 16 channels"),
    ({"rope_parameters": {"partial_rotary_factor": 1.5}}, "rope_parameters", "24 rotated of 16 channels"),
    ({"rope_parameters": {"partial_rotary_factor": 0}}, "rope_parameters", "0 rotated of 16 channels"),
    ({"rope_parameters": 5}, "rope_parameters", "where an object is wanted"),
    ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim", "at least 2 is wanted"),
    ({"linear_num_key_heads": 3}, "linear_num_key_heads", "does not divide linear_num_value_heads 4"),
    ({"num_key_value_heads": 3}, "num_key_value_heads", "does not divide num_attention_heads 4"),
    ({"layer_types": ["full_attention"]}, "layer_types", "has 1 entries for 4 layers"),
    ({"layer_types": ["linear_attention"] * 3 + ["mamba"]}, "layer_types", "names 'mamba'"),
    ({"layer_types": 3}, "layer_types", "where a list of strings is wanted"),
    ({"num_hidden_layers": 10**9, "layer_types": None}, "num_hidden_layers", "at most 4096 is wanted"),
    ({"hidden_size": None}, "hidden_size", "has no field"),
    ({"hidden_size": "8"}, "hidden_size", "where a whole number is wanted"),
    ({"hidden_size": 0}, "hidden_size", "at least 1 is wanted"),
    ({"hidden_size": 10**400}, "hidden_size", "at most"),
    ({"vocab_size": True}, "vocab_size", "where a whole number is wanted"),
    ({"rms_norm_eps": 0}, "rms_norm_eps", "where a number above 0 is wanted"),
    ({"rms_norm_eps": 10**400}, "rms_norm_eps", "where a number is wanted"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps", "where a number is wanted"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "where true or false is wanted"),
    ({"eos_token_id": 32}, "eos_token_id", "names 32, which is not in the vocabulary of 32"),
    ({"eos_token_id": [3, -1]}, "eos_token_id", "names -1"),
    ({"eos_token_id": "3"}, "eos_token_id", "where a list of whole numbers is wanted"),
]


@pytest.mark.parametrize(("change", "field", "complaint"), REFUSED, ids=[f"{c[1]}-{i}" for i, c in enumerate(REFUSED)])
def test_refusals_name_file_and_field(tmp_path: Path, change: dict[str, Any], field: str, complaint: str) -> None:
    small = small_target()
    small.config |= change
    with pytest.raises(CheckpointError) as raised:
        load_target(small.write(tmp_path))
    message = str(raised.value)
    assert str(tmp_path / "config.json") in message
    assert field in message
    assert complaint in message
    assert "\n" not in message


def test_refusals_inside_the_wrapper_name_the_section(tmp_path: Path) -> None:
    small = wrapped_target()
    small.config["text_config"]["rope_parameters"]["rope_type"] = "su"
    with pytest.raises(CheckpointError, match=r"config.json: text_config.rope_parameters.rope_type is 'su'"):
        load_target(small.write(tmp_path))


@pytest.mark.parametrize("section", ["outer", "inner"])
def test_quantised_wrappers_are_refused(tmp_path: Path, section: str) -> None:
    small = wrapped_target()
    holder = small.config if section == "outer" else small.config["text_config"]
    holder["quantization_config"] = {"quant_method": "quip"}
    with pytest.raises(CheckpointError, match=r"config.json: .*quantization_config.quant_method is 'quip'"):
        load_target(small.write(tmp_path))


def test_a_wrapper_without_its_text_model(tmp_path: Path) -> None:
    small = wrapped_target()
    del small.config["text_config"]
    with pytest.raises(CheckpointError, match=r"config.json has no field text_config.hidden_size"):
        load_target(small.write(tmp_path))


def test_end_tokens_of_the_generation_config_are_checked(tmp_path: Path) -> None:
    small = small_target()
    small.files["generation_config.json"] = {"eos_token_id": [99]}
    with pytest.raises(CheckpointError, match=r"generation_config.json: eos_token_id names 99"):
        load_target(small.write(tmp_path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not valid JSON"),
        (b"\xff", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b"[]", "does not hold a JSON object"),
        (b'{"hidden_size": 1' + b"0" * 5000 + b"}", "is not valid JSON"),
    ],
)
def test_configs_that_are_none(tmp_path: Path, content: bytes, complaint: str) -> None:
    small_target().write(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config.json {complaint}"):
        load_target(tmp_path)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone is not a checkpoint directory: it has no config.json"):
        load_target(tmp_path / "gone")
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(CheckpointError, match=r"cannot read .*config.json"):
        load_target(tmp_path / "file")


def test_head_size_defaults_as_in_transformers(tmp_path: Path) -> None:
    small = small_target()
    del small.config["head_dim"]
    with pytest.raises(
        CheckpointError, match=r"q_proj.weight has shape \[128, 8\] where the config asks for \[2048, 8\]"
    ):
        load_target(small.write(tmp_path))


def small_mixture(*, fused: bool) -> Small:
    small = small_target()
    small.config |= {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text"}
    small.config |= {"num_experts": 3, "num_experts_per_tok": 2}
    small.config |= {"moe_intermediate_size": 5, "shared_expert_intermediate_size": 12}
    del small.config["intermediate_size"]
    for layer in [f"model.layers.{index}" for index in range(4)] + ["mtp.layers.0"]:
        for part in ("gate", "up", "down"):
            tensor = small.tensors.pop(f"{layer}.mlp.{part}_proj.weight")
            small.tensors[f"{layer}.mlp.shared_expert.{part}_proj.weight"] = tensor
        small.tensors[f"{layer}.mlp.gate.weight"] = ("BF16", (3, 8))
        small.tensors[f"{layer}.mlp.shared_expert_gate.weight"] = ("BF16", (1, 8))
        if fused:
            small.tensors[f"{layer}.mlp.experts.gate_up_proj"] = ("BF16", (3, 10, 8))
            small.tensors[f"{layer}.mlp.experts.down_proj"] = ("BF16", (3, 8, 5))
        for expert in () if fused else range(3):
            name = f"{layer}.mlp.experts.{expert}"
            small.tensors |= {f"{name}.{part}_proj.weight": ("BF16", (5, 8)) for part in ("gate", "up")}
            small.tensors[f"{name}.down_proj.weight"] = ("BF16", (8, 5))
    return small


@pytest.mark.parametrize("fused", [True, False])
def test_a_mixture(tmp_path: Path, fused: bool) -> None:
    small = small_mixture(fused=fused)
    spec = load_target(small.write(tmp_path))
    assert spec.feed_forward == MixtureSpec(3, 2, 5, 12)
    held = spec.tensors if fused else spec.computed
    for layer in ("model.layers.0", "model.layers.3", "mtp.layers.0"):
        assert held[f"{layer}.mlp.experts.gate_up_proj"].shape == (3, 10, 8)
        assert held[f"{layer}.mlp.experts.down_proj"].shape == (3, 8, 5)
    assert bool(spec.computed) is not fused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_experts_per_tok": 4}, "num_experts_per_tok is 4, more than num_experts 3"),
        ({"norm_topk_prob": False}, "norm_topk_prob is false; only true is supported"),
        ({"mlp_only_layers": [1]}, "mlp_only_layers names layers without experts"),
        ({"quantization_config": {"quant_method": "fp8"}}, "a mixture of experts can be built from plain weights only"),
    ],
)
def test_mixtures_that_cannot_be_built(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    small = small_mixture(fused=True)
    small.config |= change
    with pytest.raises(CheckpointError, match=message):
        load_target(small.write(tmp_path))


@pytest.mark.parametrize("expert", [0, 2])
def test_a_missing_expert_is_named(tmp_path: Path, expert: int) -> None:
    small = small_mixture(fused=False)
    name = f"model.layers.1.mlp.experts.{expert}.gate_proj.weight"
    del small.tensors[name]
    with pytest.raises(CheckpointError, match=name):
        load_target(small.write(tmp_path))


def test_experts_of_two_types_are_refused(tmp_path: Path) -> None:
    small = small_mixture(fused=False)
    small.retype("model.layers.1.mlp.experts.1.gate_proj.weight", "F32")
    with pytest.raises(CheckpointError, match="are stored as bfloat16 and float32"):
        load_target(small.write(tmp_path))
