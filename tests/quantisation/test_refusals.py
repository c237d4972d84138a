"""What is refused, in one sentence and before any work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dfc.compiler.build import BuildRequest, plan_build
from dfc.compiler.checkpoint import CheckpointError, load_target
from dfc.compiler.errors import BuildError
from tests.quantisation.checkpoints import Stored, change_config, change_tensors, write_pair
from tests.quantisation.formats import FORMATS

LAYER = "model.layers.0.mlp.up_proj"

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


def test_tensorrt(tmp_path: Path) -> None:
    checkpoint = write_pair(tmp_path, FORMATS["fp8, blocks of 128"]).quantised
    with pytest.raises(BuildError, match="is quantised, which --backend tensorrt-rtx does not read"):
        plan_build(BuildRequest(checkpoint, (), tmp_path / "artifact", backend="tensorrt-rtx"))
