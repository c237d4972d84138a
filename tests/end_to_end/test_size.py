"""What a build may cost: time, memory, disk."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.oracle.sparse_checkpoints import write_27b_dflash2, write_27b_target
from tests.paths import REFERENCE

DFC = Path(sys.executable).with_name("dfc")

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time, which other work on the machine does not add to, and the largest resident size in
    bytes."""

    seconds: float
    memory: int


def build(output: Path, target: Path, draft: Path) -> Cost:
    command = [DFC, "build", target, "--draft", draft, "-o", output]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    message = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, message
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def test_reference_build(tmp_path: Path) -> None:
    cost = build(tmp_path / "artifact", REFERENCE / "target", REFERENCE / "dflash2")
    assert cost.seconds < 60
    assert cost.memory < 2 * GIGABYTE


@pytest.mark.slow
def test_27b_build_copies_no_weights(tmp_path: Path) -> None:
    target = write_27b_target(tmp_path / "target")
    draft = write_27b_dflash2(tmp_path / "draft")
    cost = build(tmp_path / "artifact", target, draft)
    print(f"27B build: {cost.seconds:.1f} s, {cost.memory / GIGABYTE:.2f} GiB")
    assert cost.seconds < 300
    assert cost.memory < 6 * GIGABYTE
    weights = sorted((tmp_path / "artifact" / "weights").rglob("*.safetensors"))
    assert len(weights) == 16
    for file in weights:
        source = (target if file.parent.name == "target" else draft) / file.name
        assert file.samefile(source)
    engines = sum(file.stat().st_size for file in (tmp_path / "artifact" / "stages").rglob("*") if file.is_file())
    assert engines < 50e6
