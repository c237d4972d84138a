"""Builds of TensorRT-RTX engines that are killed at random moments leave nothing but the cache."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dfc.artifacts import open_artifact, verify
from tests.artifacts.samples import content
from tests.cli.process import DFC
from tests.oracle.random_checkpoints import TargetGeometry, write_target

pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")

LONGEST = 5.0
"""Seconds into a build that compiles: by then it is in the middle of its engines."""

LONGEST_RECALLED = 0.4
"""Seconds from the first recalled stage on: by then a build ends."""

OPTIONS = ("--backend", "tensorrt-rtx", "--compute-capability", "8.9", "--opt-level", "0")


class Builds:
    """Builds of one small target into `output`, with caches and temporary files of their own."""

    def __init__(self, folder: Path) -> None:
        self.target = write_target(folder / "target", TargetGeometry(layers="ga", mtp=False))
        self.output = folder / "out" / "artifact"
        self.temporary = folder / "tmp"
        self.output.parent.mkdir()
        self.temporary.mkdir()
        self._environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(self.temporary)}

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [str(DFC), "build", str(self.target), "-o", str(self.output), "--max-context", "64"]
        return subprocess.Popen([*command, *OPTIONS, *options], stderr=subprocess.PIPE, env=self._environment)

    def finish(self) -> None:
        """Build to the end, check the artifact and remove it."""
        with self.start() as process:
            _, errors = process.communicate()
        assert process.returncode == 0, errors
        assert self.left() == {"artifact"}
        self.remove()

    def remove(self) -> None:
        """Remove an artifact, which must be whole."""
        assert verify(open_artifact(self.output)) == []
        shutil.rmtree(self.output)

    def left(self) -> set[str]:
        """Return what lies where the artifact is to come, itself included."""
        return set(os.listdir(self.output.parent))


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_ten_random_moments(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    target = content(builds.target)
    # Its stages are in the cache then, so that half of the moments fall into what comes behind them.
    builds.finish()
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    for number in range(10):
        sent = (signal.SIGTERM, signal.SIGKILL)[number % 2]
        compiles = number % 4 < 2
        moment = moments.uniform(0, LONGEST if compiles else LONGEST_RECALLED)
        what = f"seed {seed}, moment {number}: {sent.name} after {moment:.2f} seconds"
        before = builds.left()
        with builds.start(*(["--no-cache"] if compiles else [])) as process:
            assert process.stderr is not None
            first = b"" if compiles else process.stderr.readline()
            time.sleep(moment)
            process.send_signal(sent)
            _, errors = process.communicate(timeout=60)
        lines = (first + errors).decode().splitlines()
        if process.returncode == 128 + sent:
            assert lines[-1] == "dfc: terminated", what
        else:
            # Python takes a moment until it unwinds; nothing has been written by then.
            assert process.returncode == -sent or lines[-1].startswith("built "), f"{what}: {lines}"
        if builds.output.exists():
            assert "manifest" in lines, what
            builds.remove()
        stray = builds.left() - before
        assert stray == set() or sent == signal.SIGKILL, what
        assert all(name.startswith(".artifact.") for name in stray), what
        assert os.listdir(builds.temporary) == [], what
        assert content(builds.target) == target, what
    # The next build removes what SIGKILL left.
    builds.finish()


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_a_first_build_that_is_told_to_end_leaves_no_artifact(tmp_path: Path) -> None:
    builds = Builds(tmp_path)
    with builds.start("--no-cache") as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"engine target_advance, 1 rows")
        assert builds.left() != set()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert errors == b"dfc: terminated\n"
    assert builds.left() == set()
    assert os.listdir(builds.temporary) == []
