"""Types of rotary embeddings against the oracle, and the limits that they set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dfc.compiler.build import BuildRequest, plan_build
from dfc.compiler.errors import BuildError
from tests.cli.process import assert_fails, dfc
from tests.end_to_end.decoding import build, decode
from tests.end_to_end.geometries import NEW_TOKENS, PLAIN, PROMPTS
from tests.oracle import speculate
from tests.oracle.random_checkpoints import DraftGeometry, write_dflash2, write_target
from tests.oracle.target import Target

# Trained on so few positions that every part of a scaling acts within the prompts.
TYPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 3.0},
    "proportional": {"partial_rotary_factor": 0.5},
    "llama3": {
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 8.0},
}


@pytest.mark.parametrize("name", TYPES)
def test_tokens_and_rounds_equal_the_oracles(tmp_path: Path, name: str) -> None:
    rope = {"rope_type": name, "partial_rotary_factor": 1.0, **TYPES[name]}
    geometry = replace(PLAIN, layers="aga", rope=rope, seed=31, dtype=torch.float32)
    directory = write_target(tmp_path / "target", geometry)
    artifact = build(tmp_path / "artifact", directory)
    target = Target(directory)
    for prompt in PROMPTS:
        expected = speculate.run(target, list(prompt), NEW_TOKENS, mtp_drafts=3)
        assert expected.min_top2_margin > 1e-3, "a near tie would make this case a coin toss: choose another seed"
        decoded = decode(artifact, prompt, NEW_TOKENS, "mtp", 3)
        assert decoded.token_ids == expected.greedy_ids
        assert decoded.rounds == expected.rounds["mtp"]


def test_yarn_allows_a_longer_context_and_no_more(tmp_path: Path) -> None:
    geometry = replace(PLAIN, rope={"rope_type": "yarn", "factor": 4.0})
    directory = write_target(tmp_path / "target", geometry)
    request = BuildRequest(directory, (), tmp_path / "artifact", max_context=4096)
    assert plan_build(request).max_context == 4096
    with pytest.raises(BuildError, match=r"--max-context 4097 is more than the 4096 positions"):
        plan_build(replace(request, max_context=4097))


@pytest.mark.parametrize("kind", ["default", "dynamic"])
def test_other_types_do_not(tmp_path: Path, kind: str) -> None:
    directory = write_target(tmp_path / "target", replace(PLAIN, rope={"rope_type": kind}))
    config = json.loads((directory / "config.json").read_text())
    if kind != "default":
        config["rope_parameters"]["factor"] = 4.0
        (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(BuildError, match=r"more than the 1024 positions that the config of the target"):
        plan_build(BuildRequest(directory, (), tmp_path / "artifact", max_context=1025))


def test_a_drafters_positions_are_a_limit_too(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target", PLAIN)
    draft = write_dflash2(tmp_path / "draft", PLAIN, DraftGeometry())
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 100}))
    request = BuildRequest(target, (draft,), tmp_path / "artifact")
    assert plan_build(request).max_context == 100
    with pytest.raises(BuildError, match=r"more than the 100 positions that the config of the drafter"):
        plan_build(replace(request, max_context=101))
    config["rope_parameters"] |= {"rope_type": "yarn", "factor": 3.0}
    (draft / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 100}))
    assert plan_build(replace(request, max_context=300)).max_context == 300


def test_a_prompt_past_the_limit_is_refused(tmp_path: Path) -> None:
    directory = write_target(tmp_path / "target", PLAIN)
    build_command = ("build", directory, "-o", tmp_path / "artifact", "--max-context")
    assert_fails(dfc(*build_command, 2000), 1, "--max-context 2000 is more than the 1024 positions")
    assert not (tmp_path / "artifact").exists()
    assert dfc(*build_command, 8).returncode == 0
    ids = ",".join(["5"] * 8)
    assert_fails(dfc("run", tmp_path / "artifact", "--prompt-ids", ids), 1, "8", "--max-context")
