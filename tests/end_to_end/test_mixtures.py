"""Mixtures of experts in the layouts that publishers use, against transformers and the oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.process import dfc
from tests.compiler.test_forward import logits_of
from tests.end_to_end.decoding import build, decode
from tests.end_to_end.geometries import NEW_TOKENS, PROMPTS
from tests.oracle import speculate
from tests.oracle.random_checkpoints import Experts, TargetGeometry, write_target
from tests.oracle.target import Target

MIXTURE = TargetGeometry(experts=Experts(), seed=21, dtype=torch.float32)

CASES = {
    "fused": MIXTURE,
    "one tensor for an expert, in the wrapper": replace(
        MIXTURE, with_vision=True, experts=Experts(fused=False, mtp_fused=False), shards=3, seed=22
    ),
    "fused but for the head": replace(MIXTURE, experts=Experts(mtp_fused=False), dtype=torch.bfloat16, seed=23),
    "single experts but for the head, all chosen": replace(
        MIXTURE, experts=Experts(count=4, chosen=4, fused=False), dtype=torch.bfloat16, seed=24
    ),
    "one of many": replace(MIXTURE, experts=Experts(count=64, chosen=1, width=24), seed=25),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_rounds_equal_the_oracles(tmp_path: Path, name: str) -> None:
    directory = write_target(tmp_path / "target", CASES[name])
    artifact = build(tmp_path / "artifact", directory)
    target = Target(directory)
    for prompt in PROMPTS:
        expected = speculate.run(target, list(prompt), NEW_TOKENS, mtp_drafts=3)
        assert expected.min_top2_margin > 1e-3, "a near tie would make this case a coin toss: choose another seed"
        assert decode(artifact, prompt, NEW_TOKENS, "none").token_ids == expected.greedy_ids
        decoded = decode(artifact, prompt, NEW_TOKENS, "mtp", 3)
        assert decoded.token_ids == expected.greedy_ids
        assert decoded.rounds == expected.rounds["mtp"]


@pytest.mark.parametrize("speculation", ["none", "mtp"])
def test_dfc_run_prints_text_and_the_oracles_tokens(tmp_path: Path, speculation: str) -> None:
    directory = write_target(tmp_path / "target", MIXTURE)
    built = dfc("build", directory, "-o", tmp_path / "artifact")
    assert built.returncode == 0, built.stderr
    command = ("run", tmp_path / "artifact", "--prompt-ids", "5,77,130,9,200", "--max-new", 12, "--ignore-eos")
    shown = dfc(*command, "--spec", speculation)
    assert shown.returncode == 0, shown.stderr
    told = dfc(*command, "--spec", speculation, "--json")
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    assert result["token_ids"] == Target(directory).greedy([5, 77, 130, 9, 200], 12).tokens
    assert result["text"].strip()
    assert shown.stdout.decode().strip() == result["text"].strip()


@pytest.mark.parametrize("name", ["fused", "one tensor for an expert, in the wrapper", "one of many"])
def test_logits_equal_transformers(tmp_path: Path, name: str) -> None:
    directory = write_target(tmp_path / "target", CASES[name])
    artifact = build(tmp_path / "artifact", directory)
    ids = [3, 200, 17, 17, 45, 319, 8]
    logits = logits_of(directory, artifact.path("weights"), ids)
    expected = Target(directory).forward(ids).logits.numpy()
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()
