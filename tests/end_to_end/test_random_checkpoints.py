"""Other geometries, with random weights, against the PyTorch oracle: tokens and every round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.end_to_end.decoding import build, decode
from tests.end_to_end.geometries import BLOCK_DRAFTERS, NEW_TOKENS, PLAIN, PROMPTS
from tests.oracle import speculate
from tests.oracle.dflash2 import DFlash2
from tests.oracle.random_checkpoints import DraftGeometry, write_dflash2, write_target
from tests.oracle.target import Target

CASES = {
    **BLOCK_DRAFTERS,
    "wrapper, tied, one file, block of two": (
        replace(PLAIN, with_vision=True, tied=True, shards=1, seed=3),
        DraftGeometry(block_size=2, taps=1, group_size=64, rank=3, top_k=1, nested=False),
    ),
    "block of 16, four taps, last layer tapped": (
        replace(PLAIN, seed=4),
        DraftGeometry(block_size=16, taps=4, group_size=8, rank=17, top_k=12, target_layer_ids=(2, 0, 1)),
    ),
    "causal everywhere, biases, scales, soft cap": (
        replace(PLAIN, seed=7, dtype=torch.float32),
        DraftGeometry(
            causal=True,
            attention_bias=True,
            input_embedding_scale=0.5,
            output_multiplier=0.7,
            final_logit_softcapping=4.0,
            codebook_suffix=".weight",
            prefix="model.",
        ),
    ),
    "other heads, intervals instead of a list": (
        replace(
            PLAIN,
            layers="gaga",
            layer_types_listed=False,
            num_heads=6,
            num_kv_heads=6,
            key_heads=3,
            value_heads=3,
            value_head_dim=24,
            conv_kernel_size=3,
            partial_rotary_factor=0.5,
            seed=8,
        ),
        DraftGeometry(group_size=32, num_heads=3, num_kv_heads=3, target_layer_ids=(1, 3)),
    ),
    "more drafts than convolution history": (
        replace(PLAIN, layers="gag", conv_kernel_size=2, key_heads=1, value_heads=6, seed=9),
        DraftGeometry(block_size=9, taps=8),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_rounds_equal_the_oracles(tmp_path: Path, name: str) -> None:
    geometry, draft = CASES[name]
    target_directory = write_target(tmp_path / "target", geometry)
    draft_directory = write_dflash2(tmp_path / "draft", geometry, draft)
    artifact = build(tmp_path / "artifact", target_directory, draft_directory)
    target = Target(target_directory)
    drafter = DFlash2(draft_directory, target)
    requests: tuple[tuple[str, int], ...] = (("dflash2", draft.block_size - 1), ("mtp", 3))
    for prompt in PROMPTS:
        expected = speculate.run(target, list(prompt), NEW_TOKENS, dflash2=drafter, mtp_drafts=3)
        assert expected.min_top2_margin > 1e-3, "a near tie would make this case a coin toss: choose another seed"
        assert decode(artifact, prompt, NEW_TOKENS, "none").token_ids == expected.greedy_ids
        for speculation, draft_tokens in requests:
            decoded = decode(artifact, prompt, NEW_TOKENS, speculation, draft_tokens)
            assert decoded.token_ids == expected.greedy_ids
            assert decoded.rounds == expected.rounds[speculation]


def test_a_short_runtime_block_moves_the_convolutions_border(tmp_path: Path) -> None:
    geometry, draft = CASES["block of 16, four taps, last layer tapped"]
    target_directory = write_target(tmp_path / "target", geometry)
    draft_directory = write_dflash2(tmp_path / "draft", geometry, draft)
    artifact = build(tmp_path / "artifact", target_directory, draft_directory)
    target = Target(target_directory)
    prompt = list(PROMPTS[1])
    expected = speculate.run(target, prompt, NEW_TOKENS, dflash2=DFlash2(draft_directory, target), block_size=4)
    assert decode(artifact, prompt, NEW_TOKENS, "dflash2", 3).rounds == expected.rounds["dflash2"]
