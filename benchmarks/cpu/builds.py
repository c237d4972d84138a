"""Time of a build with no stages kept, with all of them, and after a change of one drafter; and the stages compiled.

python -m benchmarks.cpu.builds [--backend tensorrt-rtx]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.paths import REFERENCE

DFC = Path(sys.executable).with_name("dfc")


def build(draft: Path, folder: Path, backend: str, cache: Path) -> tuple[float, list[str]]:
    """Build in a process of its own and return the seconds and the stages that were compiled."""
    command = [DFC, "build", REFERENCE / "target", "--draft", draft, "-o", folder / "artifact", "--force"]
    began = time.perf_counter()
    finished = subprocess.run(
        [*command, "--backend", backend],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - began
    lines = finished.stderr.splitlines()
    return seconds, [line.split()[1].rstrip(":,") for line in lines if line.startswith("stage ")]


def main() -> None:
    """Print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="onnxruntime")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {"cold": [], "warm": [], "changed drafter": []}
    compiled: dict[str, list[str]] = {}
    for _ in range(arguments.repetitions):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            changed = folder / "changed"
            shutil.copytree(REFERENCE / "dflash2", changed)
            config = json.loads((changed / "config.json").read_text())
            config["rms_norm_eps"] *= 2
            (changed / "config.json").write_text(json.dumps(config))
            for what, draft in zip(seconds, (REFERENCE / "dflash2", REFERENCE / "dflash2", changed), strict=True):
                taken, compiled[what] = build(draft, folder, arguments.backend, folder / "cache")
                seconds[what].append(taken)
    for what, times in seconds.items():
        stages = sorted(set(compiled[what]))
        spread = f"{min(times):.1f} to {max(times):.1f}"
        print(f"{what}: {median(times):.1f} s ({spread}), {len(stages)} stages compiled: {', '.join(stages) or 'none'}")


if __name__ == "__main__":
    main()
