"""Weights come in as hard links; where that is impossible, as copies that keep their holes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.artifacts import ArtifactError, ArtifactWriter, open_artifact, verify
from dfc.artifacts.copying import copy_sparse, link_or_copy
from tests.artifacts.samples import ENGINE, assert_one_sentence, sample_manifest

HOLE = 8 << 20


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A hole, data, a hole, data, and a hole at the end."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for position in (HOLE, 3 * HOLE):
            file.seek(position)
            file.write(b"weights" * 1000)
        file.truncate(5 * HOLE)
    return path


def refuse_links(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def link(source: object, destination: object) -> NoReturn:
        raise OSError(code, os.strerror(code), str(source), None, str(destination))

    monkeypatch.setattr(os, "link", link)


def test_weights_are_links_and_their_source_is_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError("a link shares its mode, owner and times with the checkpoint")

    source = tmp_path / "model.safetensors"
    source.write_bytes(b"weights")
    source.chmod(0o440)
    os.utime(source, ns=(10**18, 10**18))
    for name in ("chmod", "fchmod", "chown", "fchown", "utime"):
        monkeypatch.setattr(os, name, refuse)
    for _ in range(2):
        with ArtifactWriter(tmp_path / "artifact", force=True) as writer:
            writer.add_bytes(ENGINE, b"graph")
            writer.add_file("weights/model.safetensors", source)
            writer.commit(sample_manifest())
    status = source.stat()
    assert source.samefile(tmp_path / "artifact" / "weights" / "model.safetensors")
    assert status.st_nlink == 2
    assert stat.S_IMODE(status.st_mode) == 0o440
    assert status.st_mtime_ns == 10**18
    assert source.read_bytes() == b"weights"


def test_an_abandoned_build_leaves_the_source(tmp_path: Path) -> None:
    source = tmp_path / "model.safetensors"
    source.write_bytes(b"weights")
    with ArtifactWriter(tmp_path / "artifact") as writer:
        writer.add_file("weights/model.safetensors", source)
    assert source.read_bytes() == b"weights"
    assert source.stat().st_nlink == 1


def test_a_link_cannot_be_written_through(tmp_path: Path) -> None:
    source = tmp_path / "model.safetensors"
    source.write_bytes(b"weights")
    with ArtifactWriter(tmp_path / "artifact") as writer:
        writer.add_file("weights/model.safetensors", source)
        for again in (
            lambda: writer.path("weights/model.safetensors"),
            lambda: writer.add_bytes("weights/model.safetensors", b"other"),
            lambda: writer.add_file("weights/model.safetensors", source),
        ):
            with pytest.raises(ArtifactError) as caught:
                again()
            assert_one_sentence(caught.value, "weights/model.safetensors", "already")
    assert source.read_bytes() == b"weights"


def test_a_link_in_a_cache_is_followed_to_its_file(tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "d1ce"
    snapshot = tmp_path / "snapshots" / "main" / "model.safetensors"
    blob.parent.mkdir()
    snapshot.parent.mkdir(parents=True)
    blob.write_bytes(b"weights")
    snapshot.symlink_to("../../blobs/d1ce")
    link_or_copy(snapshot, tmp_path / "linked")
    assert not (tmp_path / "linked").is_symlink()
    assert blob.samefile(tmp_path / "linked")


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_a_copy_where_no_link_is_possible(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refuse_links(monkeypatch, code)
    snapshot = tmp_path / "snapshot"
    snapshot.symlink_to(sparse)
    with ArtifactWriter(tmp_path / "artifact") as writer:
        writer.add_bytes(ENGINE, b"graph")
        writer.add_file("weights/model.safetensors", snapshot)
        writer.commit(sample_manifest())
    copied = tmp_path / "artifact" / "weights" / "model.safetensors"
    assert not copied.is_symlink()
    assert not copied.samefile(sparse)
    assert copied.read_bytes() == sparse.read_bytes()
    assert_holes_kept(sparse, copied)
    assert verify(open_artifact(tmp_path / "artifact")) == []


def assert_holes_kept(source: Path, copied: Path) -> None:
    # A block or so may differ where data begins in the middle of one.
    assert copied.stat().st_blocks <= source.stat().st_blocks + 64


def refuse_copy(*arguments: Any) -> NoReturn:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


@pytest.mark.parametrize("copy_file_range", [refuse_copy, lambda *arguments: 0, None])
def test_without_copying_in_the_kernel(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch, copy_file_range: object
) -> None:
    if copy_file_range is None:
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    copy_sparse(sparse, tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == sparse.read_bytes()
    assert_holes_kept(sparse, tmp_path / "copied")


def test_on_a_filesystem_that_cannot_tell_holes(tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lseek(descriptor: int, position: int, how: int) -> NoReturn:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", lseek)
    copy_sparse(sparse, tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == sparse.read_bytes()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 200_000), st.binary(min_size=1, max_size=5000)), max_size=6), st.integers(0, 9)
)
def test_any_layout_is_copied_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[int, bytes]], tail: int
) -> None:
    folder = tmp_path_factory.mktemp("layout")
    with (folder / "source").open("wb") as file:
        for position, data in pieces:
            file.seek(position)
            file.write(data)
        end = max((position + len(data) for position, data in pieces), default=0)
        file.truncate(end + tail * 4096)
    copy_sparse(folder / "source", folder / "copied")
    assert (folder / "copied").read_bytes() == (folder / "source").read_bytes()


def test_a_copy_never_replaces_a_file(tmp_path: Path, sparse: Path) -> None:
    (tmp_path / "there").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        link_or_copy(sparse, tmp_path / "there")
    with pytest.raises(FileExistsError):
        copy_sparse(sparse, tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["missing", "directory", "dangling"])
def test_a_source_that_is_no_file(tmp_path: Path, kind: str) -> None:
    source = tmp_path / kind
    if kind == "directory":
        source.mkdir()
    elif kind == "dangling":
        source.symlink_to("nowhere")
    with ArtifactWriter(tmp_path / "artifact") as writer, pytest.raises(ArtifactError) as caught:
        writer.add_file("weights/model.safetensors", source)
    assert_one_sentence(caught.value, str(source), "not a file")
