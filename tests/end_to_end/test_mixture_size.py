"""What a build of the 35B-A3B geometry may cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracle.sparse_mixture import write_35b_target

DFC = Path(sys.executable).with_name("dfc")

GIGABYTE = 1 << 30

# A child begins with its parent's peak of memory: a small process between the test and the build has a low one.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
sys.exit(code)
"""


@pytest.mark.slow
def test_35b_build_copies_no_weights(tmp_path: Path) -> None:
    target, output = write_35b_target(tmp_path / "target"), tmp_path / "artifact"
    command = [sys.executable, "-c", MEASURE, DFC, "build", target, "-o", output]
    measured = subprocess.run(command, capture_output=True, check=False)
    assert measured.returncode == 0, measured.stderr.decode()
    seconds, memory = map(float, measured.stdout.split())
    print(f"35B-A3B build: {seconds:.1f} s, {memory / GIGABYTE:.2f} GiB")
    assert seconds < 600
    assert memory < 8 * GIGABYTE
    weights = sorted((output / "weights").rglob("*.safetensors"))
    assert len(weights) == 16
    assert all(file.samefile(target / file.name) for file in weights)
    assert sum(file.stat().st_size for file in (output / "stages").rglob("*") if file.is_file()) < 50e6
