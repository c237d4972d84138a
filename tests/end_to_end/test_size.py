"""What a build may cost: time, memory, disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.costs import GIGABYTE, build_cost, bytes_of
from tests.oracle.sparse_checkpoints import write_27b_dflash2, write_27b_target
from tests.oracle.sparse_mixture import write_35b_target
from tests.paths import REFERENCE


def test_reference_build(tmp_path: Path) -> None:
    cost = build_cost(REFERENCE / "target", tmp_path / "artifact", "--draft", REFERENCE / "dflash2")
    assert cost.seconds < 60
    assert cost.memory < 2 * GIGABYTE


@pytest.mark.slow
def test_27b_build_copies_no_weights(tmp_path: Path) -> None:
    target = write_27b_target(tmp_path / "target")
    draft = write_27b_dflash2(tmp_path / "draft")
    output = tmp_path / "artifact"
    cost = build_cost(target, output, "--draft", draft)
    print(f"27B build: {cost.seconds:.1f} s, {cost.memory / GIGABYTE:.2f} GiB")
    assert cost.seconds < 300
    assert cost.memory < 6 * GIGABYTE
    weights = sorted((output / "weights").rglob("*.safetensors"))
    assert len(weights) == 16
    for file in weights:
        source = (target if file.parent.name == "target" else draft) / file.name
        assert file.samefile(source)
    assert bytes_of(output / "stages") < 50e6


@pytest.mark.slow
def test_35b_build_copies_no_weights(tmp_path: Path) -> None:
    target, output = write_35b_target(tmp_path / "target"), tmp_path / "artifact"
    cost = build_cost(target, output)
    print(f"35B-A3B build: {cost.seconds:.1f} s, {cost.memory / GIGABYTE:.2f} GiB")
    assert cost.seconds < 600
    assert cost.memory < 8 * GIGABYTE
    weights = sorted((output / "weights").rglob("*.safetensors"))
    assert len(weights) == 16
    assert all(file.samefile(target / file.name) for file in weights)
    assert bytes_of(output / "stages") < 50e6
