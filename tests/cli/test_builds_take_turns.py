"""Two builds of one output at once: one waits, says so, and both leave a whole artifact."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from dfc.artifacts import open_artifact, verify
from tests.cli.process import DFC
from tests.oracle.random_checkpoints import TargetGeometry, write_target
from tests.paths import ROOT

HOLD = """
import sys
from pathlib import Path
from dfc.artifacts.turns import only_build
with only_build(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target", TargetGeometry())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the turn for `tmp_path / "out" / "artifact"`."""
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", HOLD, str(tmp_path / "out" / "artifact")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def start(target: Path, output: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [str(DFC), "build", str(target), "-o", str(output), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def first_line(stream: IO[bytes] | None) -> bytes:
    """Return a line, or what there is when none comes."""
    assert stream is not None
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(60)
    return lines[0] if lines else b""


@pytest.mark.parametrize("ending", ["ends", "is killed"])
def test_a_build_waits_until_the_other_ends(
    target: Path, holder: subprocess.Popen[bytes], tmp_path: Path, ending: str
) -> None:
    output = tmp_path / "out" / "artifact"
    with start(target, output) as build:
        assert first_line(build.stderr) == f"waiting for another build of {output}\n".encode()
        assert build.poll() is None
        assert os.listdir(output.parent) == [".artifact.lock"]
        if ending == "ends":
            assert holder.stdin is not None
            holder.stdin.close()
        else:
            holder.kill()
        _, errors = build.communicate(timeout=120)
    assert build.returncode == 0, errors
    assert os.listdir(output.parent) == ["artifact"]
    assert verify(open_artifact(output)) == []


def test_another_output_does_not_wait(target: Path, holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with start(target, tmp_path / "out" / "another") as build:
        _, errors = build.communicate(timeout=120)
    assert build.returncode == 0, errors
    assert b"waiting" not in errors


@pytest.mark.parametrize("options", [(), ("--force",)])
def test_two_at_once(target: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    output = tmp_path / "new" / "artifact"
    builds = [start(target, output, *options) for _ in range(2)]
    errors = [build.communicate(timeout=120)[1] for build in builds]
    codes = sorted(build.returncode for build in builds)
    # Without --force the second finds what the first built.
    assert codes == ([0, 0] if options else [0, 1]), errors
    if not options:
        assert [text for text in errors if b"exists already; give --force" in text]
    assert os.listdir(output.parent) == ["artifact"]
    assert verify(open_artifact(output)) == []


def test_a_lock_file_that_a_killed_build_left_does_not_matter(target: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".artifact.lock").write_bytes(b"")
    with start(target, tmp_path / "out" / "artifact") as build:
        _, errors = build.communicate(timeout=120)
    assert build.returncode == 0, errors
    assert os.listdir(tmp_path / "out") == ["artifact"]
