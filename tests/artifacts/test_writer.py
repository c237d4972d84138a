"""What a commit writes, what it refuses, and what `--force` may replace."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfc.artifacts import ArtifactError, ArtifactWriter, Manifest, check_replaceable, open_artifact, verify
from tests.artifacts.samples import (
    ENGINE,
    FILES,
    assert_one_sentence,
    content,
    leftovers,
    sample_manifest,
    write_artifact,
)


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    manifest = write_artifact(tmp_path / "artifact")
    listed = {name: (file.sha256, file.size) for name, file in manifest.files.items()}
    assert listed == {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in FILES.items()}
    assert Manifest.load(tmp_path / "artifact" / "manifest.json") == manifest
    assert content(tmp_path / "artifact").keys() == {*FILES, "manifest.json"}


names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3).map("/".join)


@settings(max_examples=25)
@given(st.dictionaries(names.map("weights/{}.bin".format), st.binary(max_size=100), max_size=5), st.randoms())
def test_the_same_files_give_the_same_bytes_in_any_order_and_place(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], random: Random
) -> None:
    files = {**files, ENGINE: b"graph"}
    shuffled = list(files.items())
    random.shuffle(shuffled)
    first = tmp_path_factory.mktemp("first") / "artifact"
    second = tmp_path_factory.mktemp("second") / "deeper" / "other-name"
    write_artifact(first, files)
    write_artifact(second, dict(shuffled))
    assert content(first) == content(second)
    assert {name: data for name, data in content(first).items() if name != "manifest.json"} == files
    assert verify(open_artifact(second)) == []


def test_bytes_do_not_depend_on_times_or_modes(tmp_path: Path) -> None:
    for index, mode in enumerate((0o600, 0o444)):
        source = tmp_path / f"source-{index}"
        source.write_bytes(b"weights")
        source.chmod(mode)
        os.utime(source, (index * 10**9, index * 10**9))
        with ArtifactWriter(tmp_path / f"artifact-{index}") as writer:
            writer.add_bytes(ENGINE, b"graph")
            writer.add_file("weights/model.safetensors", source)
            writer.commit(sample_manifest())
    assert content(tmp_path / "artifact-0") == content(tmp_path / "artifact-1")


def test_the_manifest_knows_neither_its_place_nor_the_day(tmp_path: Path) -> None:
    write_artifact(tmp_path / "artifact")
    text = (tmp_path / "artifact" / "manifest.json").read_text()
    assert str(tmp_path) not in text
    assert os.fspath(Path.home()) + "/" not in text
    # A time in any of its forms would be a number of ten digits or more, or have a colon between digits.
    numbers = [value for value in _values(json.loads(text)) if isinstance(value, int | float)]
    assert all(abs(number) < 10**8 for number in numbers)
    assert not [
        value for value in _values(json.loads(text)) if isinstance(value, str) and "T" in value and ":" in value
    ]


def _values(value: object) -> list[object]:
    if isinstance(value, dict):
        return [inner for key, item in value.items() for inner in (key, *_values(item))]
    if isinstance(value, list):
        return [inner for item in value for inner in _values(item)]
    return [value]


def test_progress_counts_all_bytes(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with ArtifactWriter(tmp_path / "artifact") as writer:
        for name, data in FILES.items():
            writer.add_bytes(name, data)
        writer.commit(sample_manifest(), lambda done, total: calls.append((done, total)))
    total = sum(map(len, FILES.values()))
    assert calls[-1] == (total, total)


def test_the_artifact_has_the_modes_of_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_artifact(tmp_path / "artifact")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "artifact").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "artifact" / ENGINE).stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "", "a//b", "manifest.json"])
def test_names_that_do_not_belong_inside(tmp_path: Path, name: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    with ArtifactWriter(tmp_path / "artifact") as writer:
        for add in (
            lambda: writer.path(name),
            lambda: writer.add_bytes(name, b"x"),
            lambda: writer.add_file(name, source),
        ):
            with pytest.raises(ArtifactError) as caught:
                add()
            assert_one_sentence(caught.value, name)
    assert os.listdir(tmp_path) == ["source"]


def test_a_file_in_a_directorys_place(tmp_path: Path) -> None:
    with ArtifactWriter(tmp_path / "artifact") as writer:
        writer.add_bytes("weights", b"x")
        with pytest.raises(ArtifactError) as caught:
            writer.add_bytes("weights/model.safetensors", b"x")
    assert_one_sentence(caught.value, "weights", "directory")


def test_a_manifest_that_names_an_engine_not_written(tmp_path: Path) -> None:
    for files in ({}, {"weights/model.safetensors": b"x"}):
        with pytest.raises(ArtifactError) as caught:
            write_artifact(tmp_path / "artifact", files)
        assert_one_sentence(caught.value, "engine")
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["file", "directory", "nowhere"])
def test_links_are_not_part_of_an_artifact(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_bytes(b"outside")
    (tmp_path / "directory").mkdir()
    with ArtifactWriter(tmp_path / "artifact") as writer:
        writer.add_bytes(ENGINE, b"graph")
        writer.path("weights/link").symlink_to(tmp_path / target)
        with pytest.raises(ArtifactError) as caught:
            writer.commit(sample_manifest())
    assert_one_sentence(caught.value, "weights/link", "regular file")
    assert sorted(os.listdir(tmp_path)) == ["directory", "file"]
    assert (tmp_path / "file").read_bytes() == b"outside"


def test_a_writer_is_used_once(tmp_path: Path) -> None:
    writer = ArtifactWriter(tmp_path / "artifact")
    with pytest.raises(RuntimeError, match="not open"):
        writer.path("a")
    with writer:
        writer.add_bytes(ENGINE, b"graph")
        writer.commit(sample_manifest())
        with pytest.raises(RuntimeError, match="not open"):
            writer.commit(sample_manifest())
    assert verify(open_artifact(tmp_path / "artifact")) == []


def test_missing_parents_are_made(tmp_path: Path) -> None:
    write_artifact(tmp_path / "a" / "b" / "artifact")
    assert verify(open_artifact(tmp_path / "a" / "b" / "artifact")) == []


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for output in (tmp_path / "file" / "artifact", tmp_path / "file" / "deeper" / "artifact"):
        with pytest.raises(ArtifactError) as caught:
            write_artifact(output)
        assert_one_sentence(caught.value, str(tmp_path / "file"), "irectory")


def foreign_directory(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")


def web_manifest(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").write_text('{"name": "my web page"}')


def broken_manifest(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").write_bytes(b"\xff{")


def some_file(path: Path) -> None:
    path.write_text("years of work")


def dangling_link_loop(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").symlink_to("manifest.json")


FOREIGN = (foreign_directory, web_manifest, broken_manifest, some_file, dangling_link_loop)


@pytest.mark.parametrize("make", FOREIGN)
@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_artifact_is_never_replaced(tmp_path: Path, make: Callable[[Path], None], force: bool) -> None:
    output = tmp_path / "output"
    make(output)
    before = sorted(os.walk(tmp_path))
    with pytest.raises(ArtifactError) as caught:
        write_artifact(output, force=force)
    assert_one_sentence(caught.value, str(output), "by hand" if force else "--force")
    assert sorted(os.walk(tmp_path)) == before


def test_an_artifact_is_replaced_with_force_only(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    write_artifact(output, {ENGINE: b"old", "old/extra": b"x"})
    old = content(output)
    with pytest.raises(ArtifactError) as caught:
        write_artifact(output)
    assert_one_sentence(caught.value, str(output), "--force")
    assert content(output) == old
    write_artifact(output, force=True)
    assert content(output).keys() == {*FILES, "manifest.json"}
    assert os.listdir(tmp_path) == ["artifact"]


def test_an_empty_directory_is_replaced_with_force_only(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    output.mkdir()
    with pytest.raises(ArtifactError, match="--force"):
        write_artifact(output)
    assert list(output.iterdir()) == []
    write_artifact(output, force=True)
    assert verify(open_artifact(output)) == []
    assert os.listdir(tmp_path) == ["artifact"]


def test_a_damaged_or_newer_artifact_is_replaced_with_force(tmp_path: Path) -> None:
    output = tmp_path / "artifact"
    write_artifact(output)
    document = json.loads((output / "manifest.json").read_text())
    (output / "manifest.json").write_text(json.dumps({**document, "schema_version": 99, "new": 1}))
    os.unlink(output / ENGINE)
    write_artifact(output, force=True)
    assert verify(open_artifact(output)) == []


def test_a_link_to_an_artifact_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    write_artifact(tmp_path / "store" / "real", {ENGINE: b"old"})
    (tmp_path / "link").symlink_to("store/real")
    write_artifact(tmp_path / "link", force=True)
    assert os.readlink(tmp_path / "link") == "store/real"
    assert (tmp_path / "store" / "real" / ENGINE).read_bytes() == FILES[ENGINE]
    assert sorted(os.listdir(tmp_path)) == ["link", "store"]
    assert os.listdir(tmp_path / "store") == ["real"]


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with ArtifactWriter(output) as writer:
        writer.add_bytes(ENGINE, b"graph")
        foreign_directory(output)
        with pytest.raises(ArtifactError) as caught:
            writer.commit(sample_manifest())
    assert_one_sentence(caught.value, str(output), "exists already")
    assert content(output) == {"thesis.txt": b"years of work"}
    assert leftovers(output) == []


def test_check_replaceable_agrees_before_any_work(tmp_path: Path) -> None:
    check_replaceable(tmp_path / "nothing", force=False)
    write_artifact(tmp_path / "artifact")
    check_replaceable(tmp_path / "artifact", force=True)
    foreign_directory(tmp_path / "foreign")
    for name, force in (("artifact", False), ("foreign", False), ("foreign", True)):
        with pytest.raises(ArtifactError) as caught:
            check_replaceable(tmp_path / name, force=force)
        assert_one_sentence(caught.value, str(tmp_path / name), "--force")
