"""Whether a drafter goes with a target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dfc.compiler.checkpoint import CheckpointError, DFlash2Spec, TargetSpec, check_fits, load_dflash2, load_target
from tests.checkpoint.small import small_drafter, small_target


@pytest.fixture
def target(tmp_path: Path) -> TargetSpec:
    return load_target(small_target().write(tmp_path / "target"))


@pytest.fixture
def draft(tmp_path: Path) -> DFlash2Spec:
    return load_dflash2(small_drafter().write(tmp_path / "draft"))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"num_target_layers": None},
        {"target_layer_ids": (3, 0)},
        {"target_layer_ids": (1, 1)},
        {"mask_token_id": 31},
        {"selector_top_k": 32},
        {"mask_token_id": 0},
    ],
)
def test_what_fits(draft: DFlash2Spec, target: TargetSpec, change: dict[str, Any]) -> None:
    check_fits(replace(draft, **change), target)


def test_a_mask_among_the_rows_that_are_no_tokens_fits(draft: DFlash2Spec, target: TargetSpec) -> None:
    check_fits(replace(draft, mask_token_id=31), replace(target, candidate_vocab_size=20))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": 16}, "hidden_size is 16, but the target .* has 8"),
        ({"vocab_size": 40}, "vocab_size is 40, but the target .* has 32"),
        ({"num_target_layers": 5}, "num_target_layers is 5, but the target .* has 4 layers"),
        ({"target_layer_ids": (0, 4)}, "target_layer_ids names layer 4, but the target .* has layers 0 to 3"),
        ({"target_layer_ids": (-1, 2)}, "target_layer_ids names layer -1"),
        ({"mask_token_id": 32}, "mask_token_id is 32, past the target's vocabulary of 32"),
    ],
)
def test_what_does_not_fit(draft: DFlash2Spec, target: TargetSpec, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CheckpointError, match=rf"config.json: {complaint}") as raised:
        check_fits(replace(draft, **change), target)
    assert str(draft.directory / "config.json") in str(raised.value)


def test_more_candidates_than_tokens(draft: DFlash2Spec, target: TargetSpec) -> None:
    with pytest.raises(CheckpointError, match=r"config.json: selector_top_k is 5, more than the target's 4 tokens"):
        check_fits(draft, replace(target, candidate_vocab_size=4))
