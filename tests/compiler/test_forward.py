"""Logits, features and hidden states against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from dfc.artifacts import Artifact
from dfc.compiler.checkpoint import load_target
from dfc.compiler.conversion import plan_conversion
from dfc.compiler.engines.onnxruntime import compile_graph
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.export.weights import Weights
from dfc.compiler.models.layers import FLOAT, INT64
from dfc.compiler.models.target import FAMILIES, WEIGHTS_FOLDER
from dfc.compiler.models.trunk import Rows
from dfc.compiler.quantising import Quantisation, quantise
from dfc.runtime.engine import Array
from dfc.runtime.engines import load_stage
from dfc.runtime.engines.onnxruntime import library
from dfc.runtime.target import VerifyingTarget
from tests.end_to_end.decoding import build
from tests.oracle.random_checkpoints import TargetGeometry, write_target
from tests.oracle.target import Target
from tests.paths import GOLDEN, REFERENCE

RELATIVE_TOLERANCE = 1e-4
CAPACITY = 32


def logits_of(checkpoint: Path, weights_root: Path, ids: list[int], quantisation: Quantisation | None = None) -> Array:
    """Run the trunk of the target stages with the head on every row."""
    loaded = load_target(checkpoint)
    spec, _ = plan_conversion(quantise(loaded, quantisation) if quantisation else loaded)
    stage = StageBuilder("logits", "target")
    weights = Weights(stage, spec.tensors, WEIGHTS_FOLDER, spec.quantised)
    input_ids = stage.input("input_ids", INT64, ("N", "T"))
    lengths, valid = (stage.input(name, INT64, ("N",)) for name in ("lengths", "valid"))
    trunk = FAMILIES[spec.family](stage, weights, spec, Rows(input_ids, lengths, valid, CAPACITY))
    logits = ops.linear(stage.op, trunk.hidden, weights.float32(spec.head))
    stage.output("logits", logits, FLOAT, ("N", "T", spec.vocab_size))
    finished = stage.finish()
    onnxruntime = library()
    options = onnxruntime.SessionOptions()
    options.use_per_session_threads = False
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(weights_root))
    session = onnxruntime.InferenceSession(compile_graph(finished), options, providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.array([ids]), "lengths": np.array([0]), "valid": np.array([len(ids)])}
    for tensor in finished.inputs:
        if tensor.role != "input":
            shape = [1 if isinstance(dimension, str) else dimension for dimension in tensor.shape]
            feeds[tensor.name] = np.zeros(shape, np.float32)
    result: Array = session.run(["logits"], feeds)[0][0]
    return result


def assert_relatively_close(actual: Array, expected: Array) -> None:
    """Compare against the largest magnitude of the tensor."""
    assert np.abs(actual - expected).max() <= RELATIVE_TOLERANCE * np.abs(expected).max()


@pytest.fixture(scope="module")
def golden() -> dict[str, Array]:
    return load_file(GOLDEN / "reference_forward.safetensors")


def test_reference_logits(reference_artifact: Artifact, golden: dict[str, Array]) -> None:
    ids = golden["input_ids"].tolist()
    logits = logits_of(REFERENCE / "target", reference_artifact.path("weights"), ids)
    assert_relatively_close(logits, golden["logits"])


def test_reference_hidden_and_features(reference_artifact: Artifact, golden: dict[str, Array]) -> None:
    target = VerifyingTarget(load_stage(reference_artifact, "target_verify", "onnxruntime"))
    block = target.commit(golden["input_ids"].tolist())
    assert block.hidden is not None
    assert block.features is not None
    assert_relatively_close(block.hidden.read()[0], golden["final_hidden"])
    assert_relatively_close(block.features.read()[0], golden["dflash2_features"])


@pytest.mark.parametrize("tied", [False, True])
def test_random_logits(tmp_path: Path, tied: bool) -> None:
    checkpoint = write_target(tmp_path / "target", TargetGeometry(tied=tied, with_vision=tied, seed=11))
    artifact = build(tmp_path / "artifact", checkpoint)
    ids = [3, 200, 17, 17, 45, 319, 8]
    expected = Target(checkpoint).forward(ids).logits.numpy()
    assert_relatively_close(logits_of(checkpoint, artifact.path("weights"), ids), expected)
