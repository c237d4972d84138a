"""A small manifest and artifacts made with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import safetensors.numpy

from dfc.artifacts import ArtifactWriter, Calibration, Component, Engine, Manifest, Model, Stage, Tensor, Weight

ENGINE = "stages/target_advance/onnxruntime/model.onnx"
FILES: Mapping[str, bytes] = {
    ENGINE: b"graph",
    "tokenizer/tokenizer.json": b"{}",
    "weights/target/model.safetensors": bytes(range(256)) * 64,
}


def sample_manifest() -> Manifest:
    """A manifest of one stage with an input, a cache, a state, and one engine."""
    inputs = (
        Tensor(name="input_ids", dtype="int64", shape=("batch", "rows"), role="input"),
        Tensor(name="key_3", dtype="float32", shape=("batch", 2, 64, 16), role="cache"),
        Tensor(name="recurrent_0", dtype="float32", shape=("batch", 8, 32, 32), role="state"),
    )
    outputs = (
        Tensor(name="anchor", dtype="int64", shape=("batch",), role="output"),
        Tensor(name="key_3_next", dtype="float32", shape=("batch", 2, 64, 16), role="cache", alias="key_3"),
        Tensor(name="recurrent_0_next", dtype="float32", shape=("batch", 8, 32, 32), role="state", alias="recurrent_0"),
    )
    engine = Engine(path=ENGINE, precision="float32", library="onnxruntime", library_version="1.32.0")
    stage = Stage(component="target", inputs=inputs, outputs=outputs, engines={"onnxruntime": (engine,)})
    return Manifest(
        model=Model(
            name="tiny",
            architecture="Qwen3_5ForCausalLM",
            hidden_size=256,
            vocab_size=4096,
            num_layers=8,
            max_context=64,
            eos_token_ids=(2,),
            candidate_vocab_size=4096,
        ),
        precision="float32",
        backends=("onnxruntime",),
        components={"target": Component(source="tiny", parameters={"capacity": 72, "layers": (1, 3), "note": None})},
        stages={"target_advance": stage},
    )


DEVICE = "a processor, 2 threads, onnxruntime"


def sample_calibration(plain: float = 0.5) -> Calibration:
    """Plain decoding and two lengths of MTP, at two contexts."""
    return Calibration.model_validate(
        {
            "library": "onnxruntime",
            "library_version": "1.32.0",
            "contexts": (16, 48),
            "rounds": (
                {"drafter": "none", "draft_tokens": 0, "seconds": (plain, 0.75)},
                {"drafter": "mtp", "draft_tokens": 1, "seconds": (0.625, 0.875)},
                {"drafter": "mtp", "draft_tokens": 2, "seconds": (0.75, 1.0)},
            ),
            "acceptance": {"mtp": (0.75, 0.5)},
            "thresholds": (
                {"below": 32, "drafter": "mtp", "draft_tokens": 2, "tokens_per_second": 2.5},
                {"below": None, "drafter": "none", "draft_tokens": 0, "tokens_per_second": 1.5},
            ),
        }
    )


def with_mtp(manifest: Manifest) -> Manifest:
    """Return the manifest with an MTP head among its components, for which there are no stages."""
    components = {**manifest.components, "mtp": Component(source="tiny", parameters={"draft_tokens": 2})}
    return manifest.model_copy(update={"components": components})


def write_artifact(
    output: Path, files: Mapping[str, bytes] = FILES, *, force: bool = False, manifest: Manifest | None = None
) -> Manifest:
    """Write an artifact of `files`."""
    with ArtifactWriter(output, force=force) as writer:
        for name, data in files.items():
            writer.add_bytes(name, data)
        return writer.commit(manifest or sample_manifest())


def content(root: Path) -> dict[str, bytes]:
    """Return every file below `root`, hidden ones too, by its relative name."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if not path.is_dir()
    }


def leftovers(output: Path) -> list[str]:
    """Return the names beside `output` that belong to it: what an unfinished build left."""
    return sorted(name for name in os.listdir(output.parent) if name.startswith(f".{output.name}."))


def assert_one_sentence(error: BaseException, *parts: str) -> None:
    """Check that the message is one line, is no longer than a sentence and holds `parts`."""
    message = str(error)
    assert message.isprintable(), message
    assert len(message) < 400, message
    for part in parts:
        assert part in message


def tensor_model(location: str = "target/model.safetensors", offset: int = 64, length: int = 16) -> onnx.ModelProto:
    """A model of a few nodes with one tensor in another file."""
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[length // 4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": str(offset), "length": str(length)}.items():
        tensor.external_data.add(key=key, value=value)
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in ("x", "y")]
    nodes = [onnx.helper.make_node("Add", ["x", "w"], ["s"]), onnx.helper.make_node("Relu", ["s"], ["y"], name="r")]
    graph = onnx.helper.make_graph(nodes, "graph", values[:1], values[1:], [tensor])
    return onnx.helper.make_model(graph)


def write_tensor_artifact(output: Path, model: onnx.ModelProto | None = None) -> Path:
    """Write an artifact of a real engine and real weights, with a weight of two parts in the manifest."""
    weights = {name: np.arange(16, dtype=np.float32) for name in ("a", "b", "c")}
    files = {**FILES, "weights/target/model.safetensors": safetensors.numpy.save(weights)}
    files[ENGINE] = (model or tensor_model()).SerializeToString()
    parts = [
        {"file": "weights/target/model.safetensors", "offset": offset, "length": 64, "dtype": "float32"}
        for offset in (256, 192)
    ]
    manifest = sample_manifest().model_copy(
        update={"weights": {"w": Weight.model_validate({"dtype": "float32", "shape": (2, 16), "parts": parts})}}
    )
    with ArtifactWriter(output) as writer:
        for name, data in files.items():
            writer.add_bytes(name, data)
        writer.commit(manifest)
    return output
