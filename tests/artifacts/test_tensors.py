"""Engines and manifests read weights inside the artifact's files only, and headers are bounded before parsing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from dfc.artifacts import ArtifactError, open_artifact
from dfc.artifacts.reader import read_manifest
from dfc.artifacts.safetensors_header import MAX_HEADER_BYTES, check_safetensors
from dfc.artifacts.tensors import check_file, files_of_stages
from dfc.runtime.engines import load_stage
from tests.artifacts.samples import ENGINE, assert_one_sentence, tensor_model, write_tensor_artifact

WEIGHTS = "weights/target/model.safetensors"


def in_branch(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move the initializer into a branch of an If node."""
    branch = onnx.helper.make_graph([], "branch", [], [], list(model.graph.initializer))
    del model.graph.initializer[:]
    model.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], then_branch=branch))
    return model


def in_constant(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move the initializer into a Constant node."""
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["z"], value=model.graph.initializer[0]))
    del model.graph.initializer[:]
    return model


def in_sparse(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the initializer the values of a sparse one."""
    model.graph.sparse_initializer.add().values.CopyFrom(model.graph.initializer[0])
    del model.graph.initializer[:]
    return model


def in_function(model: onnx.ModelProto) -> onnx.ModelProto:
    """Move the initializer into a Constant node of a function."""
    node = onnx.helper.make_node("Constant", [], ["z"], value=model.graph.initializer[0])
    del model.graph.initializer[:]
    model.functions.append(onnx.helper.make_function("d", "f", [], ["z"], [node], []))
    return model


PLACES: list[Callable[[onnx.ModelProto], onnx.ModelProto]] = [
    lambda model: model, in_branch, in_constant, in_sparse, in_function
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("location", "offset", "length", "reason"),
    [
        ("../../outside", 0, 4, "../../outside"),
        ("/etc/passwd", 0, 4, "/etc/passwd"),
        ("target/missing", 0, 4, "target/missing"),
        ("target/../target/model.safetensors", 0, 4, "not among the weights"),
        ("target/model.safetensors", 1 << 40, 4, "ends behind the end"),
        ("target/model.safetensors", 0, 1 << 40, "ends behind the end"),
        ("target/model.safetensors", -4, 4, "no offset"),
        ("a\x1b[2Jb", 0, 4, "\\x1b"),
    ],
)
def test_engines_that_read_elsewhere(
    tmp_path: Path,
    place: Callable[[onnx.ModelProto], onnx.ModelProto],
    location: str,
    offset: int,
    length: int,
    reason: str,
) -> None:
    root = write_tensor_artifact(tmp_path / "artifact", place(tensor_model(location, offset, length)))
    with pytest.raises(ArtifactError) as caught:
        check_file(root, ENGINE, read_manifest(root))
    assert_one_sentence(caught.value, ENGINE, reason)
    # The runtime refuses it before its library sees the model.
    with pytest.raises(ArtifactError, match=ENGINE):
        load_stage(open_artifact(root), "target_advance", "onnxruntime")


@pytest.mark.parametrize("place", PLACES)
def test_the_files_that_a_stage_reads(tmp_path: Path, place: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    root = write_tensor_artifact(tmp_path / "artifact", place(tensor_model()))
    manifest = read_manifest(root)
    assert files_of_stages(root, manifest, ["target_advance"], "onnxruntime") == {ENGINE, WEIGHTS}
    assert files_of_stages(root, manifest, ["target_advance"], "tensorrt") == set()
    assert files_of_stages(root, manifest, ["unknown"], "onnxruntime") == set()


def test_graphs_nested_without_end(tmp_path: Path) -> None:
    graph = tensor_model().graph
    for _ in range(25):
        graph = onnx.helper.make_graph([onnx.helper.make_node("If", ["c"], ["z"], then_branch=graph)], "g", [], [])
    root = write_tensor_artifact(tmp_path / "artifact", onnx.helper.make_model(graph))
    with pytest.raises(ArtifactError, match="nested"):
        check_file(root, ENGINE, read_manifest(root))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": 1 << 40}, "ends behind the end"),
        ({"length": 1 << 40}, "ends behind the end"),
        ({"length": 32}, "elements"),
        ({"file": "weights/other"}, "not listed"),
        ({"offset": -1}, "offset"),
        ({"file": "../outside"}, "../outside"),
    ],
)
def test_parts_of_weights_outside_their_file(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    document = json.loads((root / "manifest.json").read_text())
    document["weights"]["w"]["parts"][1].update(change)
    (root / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        open_artifact(root)
    assert_one_sentence(caught.value, str(root / "manifest.json"), reason)


def entry(**changes: object) -> bytes:
    return json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}).encode()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"[]", "not an object"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"9" * 5_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (entry(data_offsets=[0, 5]), "tensor a"),
        (entry(data_offsets=[-1, 4]), "tensor a"),
        (entry(data_offsets=[4, 0]), "tensor a"),
        (entry(data_offsets=[0]), "tensor a"),
        (entry(data_offsets=[0, 4.0]), "tensor a"),
        (entry(data_offsets=None), "tensor a"),
        (b'{"a\\u001b": 1}', "\\x1b"),
    ],
)
def test_damaged_safetensors_headers(tmp_path: Path, header: bytes, reason: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    with pytest.raises(ArtifactError) as caught:
        check_safetensors(path)
    assert_one_sentence(caught.value, str(path), reason)


@pytest.mark.parametrize("length", [0, 17, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_safetensors_headers_that_do_not_fit(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    if length == MAX_HEADER_BYTES + 1:
        os.truncate(path, 1 << 40)
    with pytest.raises(ArtifactError) as caught:
        check_safetensors(path)
    assert_one_sentence(caught.value, str(path), str(length) if length == MAX_HEADER_BYTES + 1 else "does not fit")
