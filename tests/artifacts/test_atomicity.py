"""An artifact is there whole or not at all: through exceptions, kills, and builds at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from dfc.artifacts import ArtifactError, ArtifactWriter, open_artifact, renaming, verify
from tests.artifacts.samples import ENGINE, FILES, content, leftovers, sample_manifest, write_artifact
from tests.paths import ROOT

OLD = {ENGINE: b"old graph", "weights/old.safetensors": b"old weights"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Where an old artifact lies."""
    path = tmp_path / "artifact"
    write_artifact(path, OLD)
    return path


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt is not."""


def stop(*arguments: object, **options: object) -> NoReturn:
    raise Stop


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Stop])
def test_an_exception_in_the_middle(output: Path, error: type[BaseException]) -> None:
    def build() -> None:
        with ArtifactWriter(output, force=True) as writer:
            writer.add_bytes(ENGINE, b"new graph")
            raise error

    old = content(output)
    with pytest.raises(error):
        build()
    assert content(output) == old
    assert os.listdir(output.parent) == [output.name]


def test_leaving_without_a_commit(output: Path) -> None:
    old = content(output)
    with ArtifactWriter(output, force=True) as writer:
        writer.add_bytes(ENGINE, b"new graph")
    assert content(output) == old
    assert os.listdir(output.parent) == [output.name]


def commit(writer: ArtifactWriter) -> None:
    for name, data in FILES.items():
        writer.add_bytes(name, data)
    writer.commit(sample_manifest())


STEPS = ("hash_files", "check_replaceable", "_sync_tree", "_sync", "replace", "shutil.rmtree")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [Stop(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_failure_in_any_step_of_the_commit(
    output: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    """Before the exchange of names the old artifact stays, after it the new one is there; nothing is ever behind."""
    old = content(output)

    def fail(*arguments: object, **options: object) -> NoReturn:
        monkeypatch.undo()
        raise error

    with ArtifactWriter(output, force=True) as writer:
        # After the writer's own checks at the start, so that it is the commit that fails.
        monkeypatch.setattr(f"dfc.artifacts.writer.{step}", fail)
        with pytest.raises((Stop, ArtifactError)) as caught:
            commit(writer)
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value)
    if step == "shutil.rmtree":
        assert verify(open_artifact(output)) == []
        assert content(output).keys() == {*FILES, "manifest.json"}
        # Only the old artifact's removal failed; the next build does it.
        write_artifact(output, force=True)
    else:
        assert content(output) == old
    assert os.listdir(output.parent) == [output.name]


def test_a_first_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dfc.artifacts.writer.move_new", stop)
    with pytest.raises(Stop):
        write_artifact(tmp_path / "artifact")
    assert os.listdir(tmp_path) == []


BUILD = """
import os, shutil, sys, time
from pathlib import Path
from dfc.artifacts import ArtifactWriter, renaming, writer as writing
from tests.artifacts.samples import FILES, sample_manifest

output, moment = Path(sys.argv[1]), sys.argv[2]

def wait(*arguments, **options):
    print("there", flush=True)
    time.sleep(600)

if moment == "manifest written":
    writing._sync_tree = wait
if moment == "names exchanged":
    shutil.rmtree = wait
if moment == "old moved aside":
    # A filesystem that cannot exchange names: the second of two renames never comes.
    renaming._renameat2 = lambda *arguments: False
    rename, done = os.rename, []
    def rename_once(source, destination):
        if done:
            wait()
        done.append(1)
        rename(source, destination)
    os.rename = rename_once
with ArtifactWriter(output, force=True) as writer:
    for name, data in FILES.items():
        writer.add_bytes(name, data)
    if moment == "files written":
        wait()
    writer.commit(sample_manifest(), wait if moment == "hashing" else None)
"""


def start_build(output: Path, moment: str) -> subprocess.Popen[str]:
    """Start a build in a process of its own and return when it waits at `moment`."""
    command = [sys.executable, "-c", BUILD, str(output), moment]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("moment", ["files written", "hashing", "manifest written"])
def test_a_killed_build(output: Path, moment: str) -> None:
    old = content(output)
    kill(start_build(output, moment))
    assert content(output) == old
    assert verify(open_artifact(output)) == []
    assert len(leftovers(output)) == 1
    # Even a build that may not replace the artifact cleans up.
    with pytest.raises(ArtifactError, match="--force"):
        write_artifact(output)
    assert leftovers(output) == []
    assert content(output) == old


def test_a_first_build_that_is_killed(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    kill(start_build(output, "files written"))
    assert not output.exists()
    assert len(leftovers(output)) == 1
    write_artifact(output)
    assert os.listdir(tmp_path) == ["artifact"]


def test_a_build_killed_after_the_exchange(output: Path) -> None:
    kill(start_build(output, "names exchanged"))
    assert content(output).keys() == {*FILES, "manifest.json"}
    assert verify(open_artifact(output)) == []
    write_artifact(output, OLD, force=True)
    assert content(output).keys() == {*OLD, "manifest.json"}
    assert os.listdir(output.parent) == ["artifact"]


def test_a_build_killed_between_two_renames(output: Path) -> None:
    old = content(output)
    kill(start_build(output, "old moved aside"))
    assert not output.exists()
    with pytest.raises(ArtifactError, match="--force"):
        write_artifact(output)
    assert content(output) == old
    assert os.listdir(output.parent) == ["artifact"]


def test_a_running_build_is_not_swept(output: Path) -> None:
    process = start_build(output, "files written")
    try:
        running = leftovers(output)
        write_artifact(output, force=True)
        assert leftovers(output) == running
        assert (output.parent / running[0] / ENGINE).read_bytes() == FILES[ENGINE]
    finally:
        kill(process)
    write_artifact(output, force=True)
    assert leftovers(output) == []


def test_of_two_builds_at_once_the_last_wins(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    with ArtifactWriter(output, force=True) as first, ArtifactWriter(output, force=True) as second:
        first.add_bytes(ENGINE, b"first")
        second.add_bytes(ENGINE, b"second")
        second.commit(sample_manifest())
        assert (output / ENGINE).read_bytes() == b"second"
        first.commit(sample_manifest())
    assert (output / ENGINE).read_bytes() == b"first"
    assert verify(open_artifact(output)) == []
    assert os.listdir(tmp_path) == ["artifact"]


def test_of_two_builds_at_once_without_force_the_first_stays(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    with ArtifactWriter(output) as first, ArtifactWriter(output) as second:
        first.add_bytes(ENGINE, b"first")
        second.add_bytes(ENGINE, b"second")
        first.commit(sample_manifest())
        with pytest.raises(ArtifactError, match="exists already"):
            second.commit(sample_manifest())
    assert (output / ENGINE).read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["artifact"]


def test_other_peoples_names_are_not_swept(tmp_path: Path) -> None:
    names = (
        ".artifact.partial",
        ".artifact.0123456g.partial",
        ".artifact.01234567.partial.old",
        ".artifact2.01234567.partial",
        ".other.01234567.partial",
        "artifact.01234567.partial",
    )
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / ".artifact.89abcdef.partial").write_bytes(b"a file")
    (tmp_path / ".artifact.89abcde0.partial").symlink_to(names[0])
    (tmp_path / ".artifact.89abcde1.partial").mkdir()
    before = set(os.listdir(tmp_path))
    write_artifact(tmp_path / "artifact")
    assert set(os.listdir(tmp_path)) == before - {".artifact.89abcde1.partial"} | {"artifact"}


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EBADF, errno.ENOTSUP])
def test_without_locks_a_build_works_and_nothing_is_swept(
    output: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(descriptor: int, operation: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    perhaps_running = output.parent / f".{output.name}.01234567.partial"
    perhaps_running.mkdir()
    write_artifact(output, force=True)
    assert content(output).keys() == {*FILES, "manifest.json"}
    assert leftovers(output) == [perhaps_running.name]


def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renaming, "_renameat2", lambda source, destination, flags: False)


def test_replacing_where_names_cannot_be_exchanged(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_exchange(monkeypatch)
    write_artifact(output, force=True)
    assert content(output).keys() == {*FILES, "manifest.json"}
    assert os.listdir(output.parent) == ["artifact"]


def test_a_failed_second_rename_puts_the_old_artifact_back(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, rename = content(output), os.rename
    without_exchange(monkeypatch)

    def fail_into_place(source: Path, destination: Path) -> None:
        if destination == output and source.suffix == ".partial":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fail_into_place)
    with pytest.raises(ArtifactError, match=os.strerror(errno.EIO)):
        write_artifact(output, force=True)
    assert content(output) == old
    assert os.listdir(output.parent) == ["artifact"]


def test_a_new_name_is_never_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("source", "there"):
        (tmp_path / name).mkdir()
    for _ in range(2):
        with pytest.raises(FileExistsError):
            renaming.move_new(tmp_path / "source", tmp_path / "there")
        without_exchange(monkeypatch)
    renaming.move_new(tmp_path / "source", tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["new", "there"]
