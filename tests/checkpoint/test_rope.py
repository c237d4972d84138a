"""Every type of rotary embedding gives transformers' frequencies, and its limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import Qwen3_5TextConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

from dfc.compiler.checkpoint import load_target
from dfc.compiler.models.rope import frequencies
from tests.checkpoint.small import small_target

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ORIGINAL = {"original_max_position_embeddings": 4096}

# Each case: the settings, max_position_embeddings, and the most positions there are.
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "default": ({"rope_type": "default"}, 64, 64),
    "linear": ({"rope_type": "linear", "factor": 4.0}, 64, 64),
    "dynamic": ({"rope_type": "dynamic", "factor": 4.0}, 64, 64),
    "llama3": ({**LLAMA3, **ORIGINAL}, 32768, 32768),
    "llama3, trained positions not said": (LLAMA3, 8192, 8192),
    "proportional": ({"rope_type": "proportional"}, 64, 64),
    "proportional with a factor": ({"rope_type": "proportional", "factor": 2.0}, 64, 64),
    "yarn": ({"rope_type": "yarn", "factor": 4.0, **ORIGINAL}, 4096, 16384),
    "yarn, trained positions not said": ({"rope_type": "yarn", "factor": 2.0}, 4096, 8192),
    "yarn, extended already": ({"rope_type": "yarn", "factor": 4.0, **ORIGINAL}, 16384, 16384),
    "yarn, scales": (
        {"rope_type": "yarn", "factor": 40.0, "mscale": 0.7, "mscale_all_dim": 1.1, **ORIGINAL},
        64,
        163840,
    ),
    "yarn, own attention factor": (
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, **ORIGINAL},
        64,
        16384,
    ),
    "yarn, betas, no truncation": (
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 20.0, "beta_slow": 2.0, "truncate": False, **ORIGINAL},
        64,
        16384,
    ),
}


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_frequencies_and_limits(tmp_path: Path, name: str, fraction: float, older: bool) -> None:
    settings, declared, most = CASES[name]
    small = small_target()
    del small.config["rope_parameters"]
    rotary = {"rope_theta": 5e5, "partial_rotary_factor": fraction}
    small.config |= {"max_position_embeddings": declared, "head_dim": 16}
    small.config |= {"rope_scaling": settings, **rotary} if older else {"rope_parameters": {**settings, **rotary}}
    spec = load_target(small.write(tmp_path)).rope
    config = Qwen3_5TextConfig(
        head_dim=16, max_position_embeddings=declared, rope_parameters={**settings, **rotary}, num_hidden_layers=1
    )
    initial = ROPE_INIT_FUNCTIONS.get(settings["rope_type"], Qwen3_5TextRotaryEmbedding.compute_default_rope_parameters)
    expected, scale = initial(config)
    found, attention_factor = frequencies(spec)
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-6, atol=0)
    assert attention_factor == pytest.approx(scale, rel=1e-12)
    assert spec.rotary_dim == 2 * len(expected)
    assert spec.positions == most
