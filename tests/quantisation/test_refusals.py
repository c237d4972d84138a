"""What is refused, in one sentence and before any work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dfc.compiler.build import BuildRequest, build_artifact, plan_build
from dfc.compiler.checkpoint import CheckpointError, load_target
from dfc.compiler.errors import BuildError
from tests.quantisation.checkpoints import Format, Stored, change_config, change_tensors, write_pair
from tests.quantisation.formats import FORMATS, GPTQ, compressed, gptq, not_by_32

LAYER = "model.layers.0.mlp.up_proj"

INT4 = "compressed-tensors, int4, groups of 32"

# Each case: the format, the change to its config, and what the message says.
CONFIGS: list[tuple[str, dict[str, Any], str]] = [
    (
        "fp8, blocks of 128",
        {"quant_method": "bitsandbytes"},
        r"quant_method is 'bitsandbytes'; weights quantised by fp8",
    ),
    ("fp8, blocks of 128", {"quant_method": None}, "has no field quantization_config.quant_method"),
    ("fp8, blocks of 128", {"fmt": "e5m2"}, "quantization_config.fmt is 'e5m2'; only 'e4m3'"),
    ("fp8, blocks of 128", {"weight_block_size": [128]}, "weight_block_size is not two numbers"),
    ("fp8, blocks of 128", {"weight_block_size": [0, 128]}, "weight_block_size is not two numbers"),
    ("fp8, blocks of 128", {"activation_scheme": "other"}, "activation_scheme is neither"),
    ("fp8, blocks of 128", {"modules_to_not_convert": ["re:("]}, "holds 're:\\(', which is no regular expression"),
    (INT4, {"format": "marlin-24"}, "format is 'marlin-24'; pack-quantized, int-quantized"),
    (INT4, {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config.format is 'sparse-24-bitmask'"),
    (INT4, compressed("pack-quantized", num_bits=3), "weights.num_bits is 3 of type 'int', which cannot be built"),
    (INT4, compressed("nvfp4-pack-quantized", type="float"), "format is 'nvfp4-pack-quantized'"),
    (INT4, compressed("pack-quantized", strategy="tensor_group"), "strategy is 'tensor_group', which cannot"),
    (INT4, compressed("pack-quantized"), "has no field .*weights.group_size"),
    ("gptq", {"bits": 3}, "bits is 3; 4 and 8 can be built"),
    ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'; gptq and gptq_v2"),
    ("gptq", {"dynamic": {"+:.*up_proj": {"bits": 8}}}, "gives some layers a quantisation of their own"),
    ("awq", {"version": "gemv"}, "version is 'gemv'; only 'gemm'"),
    ("awq", {"bits": 8}, "bits is 8; only 4 is supported"),
    ("awq", {"zero_point": False}, "zero_point is false; only true"),
    ("modelopt, fp8", {"quant_algo": "W4A16_AWQ"}, "quant_algo is 'W4A16_AWQ'; FP8 and NVFP4"),
]


@pytest.mark.parametrize("name, change, message", CONFIGS)
def test_configs(tmp_path: Path, name: str, change: dict[str, Any], message: str) -> None:
    checkpoint = write_pair(tmp_path, FORMATS[name]).quantised
    change_config(checkpoint, **change)
    with pytest.raises(CheckpointError, match=message):
        load_target(checkpoint)


def _without(suffix: str) -> Callable[[Stored], None]:
    return lambda tensors: tensors.__delitem__(f"{LAYER}.{suffix}")


def _as(suffix: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Stored], None]:
    def apply(tensors: Stored) -> None:
        tensors[f"{LAYER}.{suffix}"] = change(tensors[f"{LAYER}.{suffix}"]).contiguous()

    return apply


# Each case: the format, the change to its tensors, and what the message says.
TENSORS: list[tuple[str, Callable[[Stored], None], str]] = [
    ("fp8, blocks of 128", _without("weight_scale_inv"), f"no tensor {LAYER}.weight_scale_inv, which its quantisation"),
    ("fp8, blocks of 128", _without("weight"), f"no tensor {LAYER}.weight, which its quantisation"),
    ("fp8, blocks of 128", _as("weight", lambda t: t[:-1]), "weight has shape .* is wanted"),
    ("fp8, blocks of 128", _as("weight", lambda t: t.to(torch.float8_e5m2)), "stored as F8_E5M2; F8_E4M3 is wanted"),
    ("fp8, blocks of 128", _as("weight_scale_inv", lambda t: t[:, :0]), "weight_scale_inv has shape .* is wanted"),
    ("fp8, blocks of 128", _as("weight_scale_inv", lambda t: t.int()), "stored as I32; F32 or BF16 or F16 is wanted"),
    (INT4, _without("weight_packed"), "no tensor .*weight_packed"),
    (INT4, _as("weight_packed", lambda t: t[:, :-1]), "weight_packed has shape"),
    (INT4, _as("weight_scale", lambda t: t.T), "weight_scale has shape"),
    ("compressed-tensors, int4, columns reordered", _without("weight_g_idx"), "no tensor .*weight_g_idx"),
    (
        "compressed-tensors, int4, zero points not packed",
        _without("weight_zero_point"),
        "no tensor .*weight_zero_point",
    ),
    ("gptq", _without("scales"), "no tensor .*scales"),
    ("gptq", _as("qweight", lambda t: t.T), "qweight has shape"),
    ("gptq", _as("qzeros", lambda t: t.short()), "qzeros is stored as I16; I32 or U32 is wanted"),
    ("awq", _without("qzeros"), "no tensor .*qzeros"),
    ("modelopt, nvfp4", _without("weight_scale_2"), "no tensor .*weight_scale_2"),
    ("modelopt, nvfp4", _as("weight_scale", lambda t: t.float()), "stored as F32; F8_E4M3 is wanted"),
    ("modelopt, nvfp4", lambda tensors: tensors.update({f"{LAYER}.pre_quant_scale": torch.ones(1)}), "pre_quant_scale"),
]


@pytest.mark.parametrize("name, change, message", TENSORS)
def test_tensors(tmp_path: Path, name: str, change: Callable[[Stored], None], message: str) -> None:
    checkpoint = write_pair(tmp_path, FORMATS[name]).quantised
    change_tensors(checkpoint, change)
    with pytest.raises(CheckpointError, match=message):
        load_target(checkpoint)


def test_an_excluded_layer_that_is_quantised_all_the_same(tmp_path: Path) -> None:
    checkpoint = write_pair(tmp_path, FORMATS["fp8, blocks of 128"]).quantised
    change_config(checkpoint, modules_to_not_convert=[LAYER])
    with pytest.raises(CheckpointError, match=rf"tensor {LAYER}.weight is stored as F8_E4M3, not as one of"):
        load_target(checkpoint)


def test_groups_that_no_product_works_with(tmp_path: Path) -> None:
    narrow = Format(gptq(4, 8, 1, True), {**GPTQ, "group_size": 8}, not_by_32)
    checkpoint = write_pair(tmp_path, narrow).quantised
    with pytest.raises(CheckpointError, match=r"has groups of 8 in 128 columns; whole groups of a multiple of 16"):
        load_target(checkpoint)


def test_damaged_groups_leave_nothing_behind(tmp_path: Path) -> None:
    checkpoint = write_pair(tmp_path, FORMATS["gptq, columns reordered"]).quantised
    change_tensors(checkpoint, _as("g_idx", lambda t: t * 0 + 1))
    with pytest.raises(CheckpointError, match=rf"the layer {LAYER} names groups for its columns that are not of 128"):
        build_artifact(BuildRequest(checkpoint, (), tmp_path / "artifact"))
    assert not [path for path in tmp_path.iterdir() if "artifact" in path.name and path.is_dir()]


def test_tensorrt(tmp_path: Path) -> None:
    checkpoint = write_pair(tmp_path, FORMATS["fp8, blocks of 128"]).quantised
    with pytest.raises(BuildError, match="has quantised weights, which --backend tensorrt-rtx does not read"):
        plan_build(BuildRequest(checkpoint, (), tmp_path / "artifact", backend="tensorrt-rtx"))
