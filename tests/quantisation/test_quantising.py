"""`dfc build --quantize`: what the artifact holds, and that it computes what its weights say."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dfc.artifacts import Artifact
from dfc.artifacts.verification import verify
from dfc.compiler.build import BuildRequest, author_stages, build_artifact, plan_build
from dfc.compiler.checkpoint import CheckpointError
from dfc.compiler.engines.backend import EngineOptions, EngineRequest
from dfc.compiler.errors import BuildError, OptionError
from dfc.compiler.quantising import Quantisation
from dfc.compiler.stage_cache import stage_key
from tests.artifacts.samples import content
from tests.cli.process import assert_fails, dfc
from tests.compiler.test_forward import assert_relatively_close, logits_of
from tests.end_to_end.decoding import build, decode
from tests.oracle.random_checkpoints import DraftGeometry, Experts, write_dflash2, write_target
from tests.oracle.target import Target
from tests.quantisation.checkpoints import GEOMETRY, in_other_geometry, write_pair
from tests.quantisation.formats import FORMATS

IDS = [3, 200, 17, 17, 45, 319, 8]
PROMPT = (5, 77, 130, 9, 200)
CONVERTED = "weights/target/dfc-converted.safetensors"
PLAIN = ("embed_tokens", "lm_head", "mtp.", "in_proj_a", "in_proj_b", "conv1d")
"""What stays as it is unless it is asked for."""


@dataclass(frozen=True)
class Case:
    """Options, and what is stored in how many bits; more specific parts of names come first."""

    quantisation: Quantisation
    bits: tuple[tuple[str, int], ...]
    tied: bool = False

    def bits_of(self, module: str) -> int:
        """Return 0 for a layer that stays plain."""
        return next((bits for part, bits in self.bits if part in module), 0)


CASES = {
    "int4": Case(Quantisation("int4"), (*((part, 0) for part in PLAIN), ("layers", 4))),
    "int8, groups of 128": Case(Quantisation("int8", group_size=128), (*((part, 0) for part in PLAIN), ("layers", 8))),
    "each its own": Case(
        Quantisation("int4", head="int4", embedding="int8", drafters="int8", group_size=16),
        (("in_proj_a", 0), ("in_proj_b", 0), ("mtp.", 8), ("layers", 4), ("lm_head", 4), ("embed_tokens", 8)),
    ),
    "one tensor for embedding and head": Case(
        Quantisation("int8", head="int4", keep=("o_proj", "re:.*layers.1.mlp", "*.layers.2.*up_proj")),
        (
            ("o_proj", 0),
            ("layers.1.mlp", 0),
            ("layers.2.mlp.up", 0),
            ("embed_tokens", 4),
            *((part, 0) for part in PLAIN),
            ("layers", 8),
        ),
        tied=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_artifact_computes_with_its_rounded_weights(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    plain = write_target(tmp_path / "plain", replace(GEOMETRY, tied=case.tied))
    draft = write_dflash2(tmp_path / "draft", GEOMETRY, DraftGeometry())
    artifact = build(tmp_path / "artifact", plain, draft, draft_tokens=2, quantisation=case.quantisation)
    assert verify(artifact) == []
    logits = logits_of(plain, artifact.path("weights"), IDS, case.quantisation)
    _round_like(artifact, plain, case)
    oracle = Target(plain)
    assert_relatively_close(logits, oracle.forward(IDS).logits.numpy())
    expected = oracle.greedy(list(PROMPT), 16)
    assert min(expected.margins) > 1e-4, "a near tie would make this case a coin toss: choose another seed"
    for speculation in ("none", "mtp", "dflash2"):
        assert decode(artifact, PROMPT, 16, speculation).token_ids == expected.tokens, speculation


def _round_like(artifact: Artifact, plain: Path, case: Case) -> None:
    """Replace the checkpoint's weights by what the artifact holds, in float64, and check them against each other."""
    tensors, stored = load_file(plain / "model.safetensors"), load_file(artifact.path(CONVERTED))
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        bits = case.bits_of(module) if tensor.ndim == 2 else 0
        if not bits:
            assert torch.equal(stored[name], tensor), name
            continue
        assert name not in stored
        back, step = _dequantised(stored[f"{module}.weight_values"], stored[f"{module}.weight_scales"], bits)
        assert ((back - tensor.double()).abs() <= step * (0.5 + 1e-5)).all(), name
        tensors[name] = back.float()
    save_file(tensors, plain / "model.safetensors")


def _dequantised(values: Tensor, scales: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return a matrix and the step of each of its elements."""
    codes = values if bits == 8 else torch.stack([values & 15, values >> 4], dim=-1).flatten(-2)
    steps = scales.double()[..., None].expand(codes.shape)
    return ((codes.double() - 2 ** (bits - 1)) * steps).flatten(1), steps.flatten(1)


def test_two_builds_are_the_same_and_say_how_they_were_made(tmp_path: Path) -> None:
    plain = write_target(tmp_path / "plain", GEOMETRY)
    asked = Quantisation("int4", head="int8", keep=("o_proj", "down_proj"))
    first, second = (build(tmp_path / name, plain, draft_tokens=1, quantisation=asked) for name in ("one", "two"))
    assert content(first.root) == content(second.root)
    options = json.loads(first.path("manifest.json").read_text())["build"]["options"]
    assert {name: value for name, value in options.items() if name.startswith(("quantize", "keep"))} == {
        "quantize": "int4",
        "quantize_head": "int8",
        "quantize_embedding": "none",
        "quantize_drafters": "none",
        "quantize_group": "32",
        "keep": "o_proj,down_proj",
    }


def test_files_without_rounded_weights_stay_where_they_are(tmp_path: Path) -> None:
    plain = write_target(tmp_path / "plain", in_other_geometry(shards=3))
    (kept,) = plain.glob("*-00001-*")
    keep = tuple(name.removesuffix(".weight") for name, tensor in load_file(kept).items() if tensor.ndim == 2)
    artifact = build(tmp_path / "artifact", plain, draft_tokens=1, quantisation=Quantisation("int8", keep=keep))
    assert artifact.path(f"weights/target/{kept.name}").samefile(kept)
    files = sorted(path.name for path in artifact.path("weights/target").iterdir())
    assert files == ["dfc-converted.safetensors", kept.name]


def test_every_choice_is_another_compiled_stage(tmp_path: Path) -> None:
    request = BuildRequest(write_target(tmp_path / "plain", GEOMETRY), (), tmp_path / "artifact")
    choices = [
        None,
        Quantisation("int4"),
        Quantisation("int8"),
        Quantisation("int4", group_size=16),
        Quantisation("int4", head="int4"),
        Quantisation("int4", embedding="int4"),
        Quantisation("int4", keep=("o_proj",)),
    ]
    keys = []
    for choice in choices:
        plan = plan_build(replace(request, quantisation=choice))
        sizes = EngineRequest(plan.round_rows, plan.capacity, EngineOptions())
        keys.append(stage_key(next(author_stages(plan)), plan.backend, "onnxruntime", sizes))
    assert len(set(keys)) == len(keys)


def _plan(checkpoint: Path, quantisation: Quantisation, backend: str = "onnxruntime") -> None:
    plan_build(BuildRequest(checkpoint, (), checkpoint / "artifact", backend=backend, quantisation=quantisation))


def test_what_is_quantised_already_is_refused(tmp_path: Path) -> None:
    checkpoint = write_pair(tmp_path, FORMATS["fp8, blocks of 128"]).quantised
    with pytest.raises(BuildError, match="is quantised already; build it without --quantize"):
        _plan(checkpoint, Quantisation("int4"))


def test_a_mixture_of_experts_is_refused(tmp_path: Path) -> None:
    checkpoint = write_target(tmp_path / "target", in_other_geometry(experts=Experts()))
    with pytest.raises(BuildError, match="is a mixture of experts, which can be built from plain weights only"):
        _plan(checkpoint, Quantisation("int8"))


def test_tensorrt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="--quantize makes quantised weights, which --backend tensorrt-rtx"):
        _plan(write_target(tmp_path / "target", GEOMETRY), Quantisation("int8"), "tensorrt-rtx")


def test_groups_that_do_not_divide_a_layer_are_refused(tmp_path: Path) -> None:
    checkpoint = write_target(tmp_path / "target", in_other_geometry(hidden_size=144))
    with pytest.raises(BuildError, match=r"--quantize-group 32 does not divide the 144 columns of .*; give another"):
        _plan(checkpoint, Quantisation("int4"))
    _plan(checkpoint, Quantisation("int4", group_size=16))


# Each case: what is wrong with the options, and the message.
OPTIONS = [
    (("int4", {"group_size": 48}), "--quantize-group 48 is not one of 16, 32, 64, 128"),
    (("int4", {"keep": ("o_proj", "q_prj")}), "--keep q_prj names no linear layer of .*target"),
    (("int4", {"keep": ("re:(",)}), r"--keep holds 're:\(', which is no regular expression"),
    (("int4", {"keep": ("*",)}), "--keep names every layer, so --quantize has nothing to do"),
    (("int4", {"embedding": "int8"}), "--quantize-embedding is for a separate embedding"),
]


@pytest.mark.parametrize("given, message", OPTIONS)
def test_options(tmp_path: Path, given: tuple[str, dict[str, object]], message: str) -> None:
    checkpoint = write_target(tmp_path / "target", in_other_geometry(tied=True))
    weights, others = given
    with pytest.raises(OptionError, match=message):
        _plan(checkpoint, Quantisation(weights, **others))  # type: ignore[arg-type]


def test_the_command_line(tmp_path: Path) -> None:
    command = ("build", write_target(tmp_path / "target", GEOMETRY), "-o", tmp_path / "artifact")
    assert_fails(dfc(*command, "--quantize", "int4", "--keep", "q_prj"), 2, "--keep q_prj names no linear layer")
    assert_fails(dfc(*command, "--quantize-head", "int4"), 2, "--quantize-head has no effect without --quantize")
    assert_fails(dfc(*command, "--quantize", "fp8"), 2, "--quantize", "'fp8' is not one of 'int4', 'int8'")
    assert_fails(dfc(*command, "--quantize", "int4", "--quantize-group", "48"), 2, "--quantize-group", "'48'")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_number_that_is_not_finite_leaves_nothing_behind(tmp_path: Path) -> None:
    checkpoint = write_target(tmp_path / "target", GEOMETRY)
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, checkpoint / "model.safetensors")
    request = BuildRequest(checkpoint, (), tmp_path / "artifact", quantisation=Quantisation("int4"))
    with pytest.raises(CheckpointError, match=r"layers.1.mlp.up_proj.weight holds a number that is not finite"):
        build_artifact(request)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["target"]
