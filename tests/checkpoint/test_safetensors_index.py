"""Headers of weight files: what is found in them, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dfc.compiler.checkpoint import CheckpointError
from dfc.compiler.checkpoint.safetensors_index import INDEX_NAME, read_index
from tests.checkpoint.sparse import write_header, write_sharded, write_sparse_safetensors


def header(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def entry(begin: object, end: object, dtype: object = "F32", shape: object = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": [begin, end]}


def test_locations_are_where_the_bytes_lie(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(5, dtype=np.float16)}
    save_file(arrays, tmp_path / "model.safetensors")
    locations = read_index(tmp_path).take({"a": (2, 3), "b": (5,)})
    content = (tmp_path / "model.safetensors").read_bytes()
    for name, array in arrays.items():
        location = locations[name]
        assert location.file == tmp_path / "model.safetensors"
        assert content[location.offset : location.offset + location.length] == array.tobytes()
        assert location.shape == array.shape
        assert location.dtype == array.dtype.name


def test_huge_files_are_read_at_once(tmp_path: Path) -> None:
    shape = (1 << 20, 1 << 19)
    write_sparse_safetensors(tmp_path / "model.safetensors", {"first": ("BF16", shape), "last": ("F32", (3,))})
    assert (tmp_path / "model.safetensors").stat().st_size > 1 << 40
    began = time.perf_counter()
    location = read_index(tmp_path).take({"last": (3,)})["last"]
    assert time.perf_counter() - began < 1
    assert location.offset + location.length == (tmp_path / "model.safetensors").stat().st_size


def test_shards_and_a_file_beside_them(tmp_path: Path) -> None:
    write_sharded(tmp_path, {f"t{i}": ("BF16", (i + 1,)) for i in range(5)}, shards=2)
    write_sparse_safetensors(tmp_path / "model-mtp.safetensors", {"mtp.t": ("BF16", (7,))})
    index = read_index(tmp_path)
    assert set(index.names) == {"t0", "t1", "t2", "t3", "t4", "mtp.t"}
    locations = index.take({"t1": (2,), "mtp.t": (7,)})
    assert locations["t1"].file.name == "model-00002-of-00002.safetensors"
    assert locations["mtp.t"].file.name == "model-mtp.safetensors"


def test_links_are_kept_as_given(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "checkpoint").mkdir()
    write_sparse_safetensors(tmp_path / "blobs" / "4f2a", {"t": ("BF16", (2,))})
    (tmp_path / "checkpoint" / "model.safetensors").symlink_to("../blobs/4f2a")
    location = read_index(tmp_path / "checkpoint").take({"t": (2,)})["t"]
    assert location.file == tmp_path / "checkpoint" / "model.safetensors"


@pytest.mark.parametrize("dtype", ["I64", "F8_E4M3", "F64", "BOOL"])
def test_a_type_matters_only_where_the_tensor_is_needed(tmp_path: Path, dtype: str) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"odd": (dtype, (3,)), "plain": ("BF16", (2,))})
    index = read_index(tmp_path)
    assert index.take({"plain": (2,)})["plain"].dtype == "bfloat16"
    with pytest.raises(CheckpointError, match=rf"model.safetensors: tensor odd is stored as {dtype}"):
        index.take({"odd": (3,)})


def test_a_type_that_is_not_known_at_all_is_passed_over(tmp_path: Path) -> None:
    write_header(tmp_path / "model.safetensors", header(new=entry(0, 3, dtype="F6_NEW", shape=[4])), 3)
    assert "new" in read_index(tmp_path)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4)])
def test_scalars_and_empty_tensors(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", shape), "u": ("F32", (1,))})
    assert read_index(tmp_path).take({"t": shape})["t"].shape == shape


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (2, 3))})
    index = read_index(tmp_path)
    with pytest.raises(CheckpointError, match="has no tensor u, which its config asks for"):
        index.take({"u": (1,)})
    with pytest.raises(CheckpointError, match=r"model.safetensors: tensor t has shape \[2, 3\] .* asks for \[3, 2\]"):
        index.take({"t": (3, 2)})


@pytest.mark.parametrize(
    ("content", "body_size", "complaint"),
    [
        (b"{", 0, "its header is not JSON"),
        (b"\xff\xfe\xfd", 0, "its header is not JSON"),
        (b"[" * 100_000, 0, "its header is not JSON"),
        (b"[]", 0, "its header is not an object"),
        (header(t=3), 0, "the header's entry for t is damaged"),
        (header(t={}), 0, "the header's entry for t is damaged"),
        (header(t=entry(0, 4, dtype=7)), 4, "the header's entry for t is damaged"),
        (header(t=entry(0, 4, shape="1")), 4, "the header's entry for t is damaged"),
        (header(t=entry(0, 4, shape=[-1])), 4, "the header's entry for t is damaged"),
        (header(t=entry(0, 4, shape=[True])), 4, "the header's entry for t is damaged"),
        (header(t=entry(0, 4.0)), 4, "the header's entry for t is damaged"),
        (header(t=entry(-4, 0)), 4, "the header's entry for t is damaged"),
        (header(t=entry(4, 0)), 4, "tensor t ends behind the file's end"),
        (header(t=entry(0, 4)), 3, "is cut short: tensor t"),
        (header(t=entry(0, 4, shape=[2])), 4, r"tensor t of shape \[2\] in F32 does not have 4 bytes"),
        (header(t=entry(0, 4, dtype="BF16")), 4, r"tensor t of shape \[1\] in BF16 does not have 4 bytes"),
        (header(t=entry(0, 4), u=entry(2, 6)), 6, "tensors t and u share bytes"),
    ],
)
def test_damaged_headers(tmp_path: Path, content: bytes, body_size: int, complaint: str) -> None:
    file = tmp_path / "model.safetensors"
    write_header(file, content, body_size)
    with pytest.raises(CheckpointError, match=complaint) as raised:
        read_index(tmp_path)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, b"\0" * 8, b"\0" * 64, b"\xff" * 64, (57).to_bytes(8, "little") * 8]
)
def test_files_whose_header_does_not_fit(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model.safetensors is not a safetensors file: its header does not fit"):
        read_index(tmp_path)


def test_a_header_past_the_bound_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as stream:
        stream.write((100_000_001).to_bytes(8, "little"))
        stream.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="its header has 100000001 bytes"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "name", ["absent.safetensors", "../model.safetensors", "..", "", "/etc/passwd", "x" * 5000, "a\0b"]
)
def test_an_index_that_names_what_is_not_there(tmp_path: Path, name: str) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": {"t": name}}))
    with pytest.raises(CheckpointError, match=rf"{INDEX_NAME} names .* which is not a file of the directory"):
        read_index(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"t": 3}}',
        '{"weight_map": {"t": ["a"]}}',
        "[" * 100_000,
    ],
)
def test_an_index_that_is_none(tmp_path: Path, content: str) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    (tmp_path / INDEX_NAME).write_text(content)
    with pytest.raises(CheckpointError, match=rf"{INDEX_NAME} is not a safetensors index"):
        read_index(tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no .safetensors file"):
        read_index(tmp_path)


def test_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"cannot read .*model.safetensors: No such file"):
        read_index(tmp_path)


def test_a_directory_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"cannot read .*model.safetensors"):
        read_index(tmp_path)


@pytest.mark.parametrize("second", [("F32", (1,)), ("BF16", (2,))])
def test_one_name_in_two_shards(tmp_path: Path, second: tuple[str, tuple[int, ...]]) -> None:
    write_sparse_safetensors(tmp_path / "a.safetensors", {"t": ("F32", (1,))})
    write_sparse_safetensors(tmp_path / "b.safetensors", {"t": second})
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": {"t": "a.safetensors", "u": "b.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"b.safetensors: tensor t is also in a.safetensors"):
        read_index(tmp_path)


def test_one_name_in_two_files_without_an_index(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write_sparse_safetensors(tmp_path / name, {"t": ("F32", (1,))})
    with pytest.raises(CheckpointError, match=r"b.safetensors: tensor t is also in a.safetensors"):
        read_index(tmp_path)


def test_one_name_in_two_files_beside_the_indexed_ones(tmp_path: Path) -> None:
    write_sharded(tmp_path, {"other": ("F32", (1,))}, shards=1)
    for name in ("mtp-a.safetensors", "mtp-b.safetensors"):
        write_sparse_safetensors(tmp_path / name, {"t": ("F32", (1,))})
    with pytest.raises(CheckpointError, match=r"mtp-b.safetensors: tensor t is also in mtp-a.safetensors"):
        read_index(tmp_path)


def test_of_two_like_tensors_the_indexed_one_counts(tmp_path: Path) -> None:
    write_sharded(tmp_path, {"t": ("F32", (1,))}, shards=1)
    write_sparse_safetensors(tmp_path / "consolidated.safetensors", {"t": ("F32", (1,))})
    assert read_index(tmp_path).take({"t": (1,)})["t"].file.name == "model-00001-of-00001.safetensors"


def test_two_unlike_tensors_are_refused_though_one_is_indexed(tmp_path: Path) -> None:
    write_sharded(tmp_path, {"t": ("F32", (1,))}, shards=1)
    write_sparse_safetensors(tmp_path / "consolidated.safetensors", {"t": ("BF16", (1,))})
    with pytest.raises(CheckpointError, match=r"consolidated.safetensors: tensor t is also in model-00001"):
        read_index(tmp_path)


def test_two_names_of_one_file_are_one(tmp_path: Path) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    (tmp_path / "again.safetensors").symlink_to("model.safetensors")
    assert "t" in read_index(tmp_path)
