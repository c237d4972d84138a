"""What a build takes of this machine, measured."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DFC = Path(sys.executable).with_name("dfc")

GIGABYTE = 1 << 30

# A child begins with its parent's peak of memory: a small process between the test and the build has a low one.
_MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """Seconds of processor time, which other work on the machine does not add to, and the largest resident size in
    bytes."""

    seconds: float
    memory: int


def build_cost(target: Path, output: Path, *options: str | Path) -> Cost:
    """Build the artifact `output` of `target` and return what that took."""
    command = [sys.executable, "-c", _MEASURE, DFC, "build", target, "-o", output, *options]
    measured = subprocess.run(command, capture_output=True, check=False)
    assert measured.returncode == 0, measured.stderr.decode()
    seconds, memory = measured.stdout.split()
    return Cost(float(seconds), int(memory))


def bytes_of(folder: Path) -> int:
    """Return the bytes of all files under `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
