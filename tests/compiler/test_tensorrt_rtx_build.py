"""Real TensorRT-RTX engines, built without a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, author_stages, build_artifact, plan_build
from dfc.compiler.engines import tensorrt_rtx
from dfc.compiler.engines.backend import CompiledEngine, EngineOptions, EngineRequest
from dfc.compiler.engines.shapes import PROMPT_ROWS
from dfc.compiler.engines.tensorrt_builder import build_engine
from dfc.compiler.errors import BuildError
from dfc.compiler.export.stage import StageBuilder
from dfc.plugins.libraries import MissingLibraryError
from tests.artifacts.samples import assert_one_sentence
from tests.cli.process import assert_fails, dfc
from tests.oracle.sparse_checkpoints import write_27b_dflash2, write_27b_target
from tests.paths import REFERENCE

pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")

BACKEND = "tensorrt-rtx"
ITEM_SIZES = {"bfloat16": 2, "float32": 4}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    output = tmp_path_factory.mktemp("rtx") / "artifact"
    request = BuildRequest(REFERENCE / "target", (REFERENCE / "dflash2",), output, BACKEND, max_context=1024)
    build_artifact(request)
    return open_artifact(output)


def compile_stages(request: BuildRequest, names: set[str]) -> Iterator[CompiledEngine]:
    """Yield the round's engine of some stages."""
    plan = plan_build(request)
    wanted = EngineRequest(plan.round_rows, plan.capacity, request.options)
    for stage in author_stages(plan):
        if stage.name in names:
            yield next(tensorrt_rtx.compile_stage(stage, wanted, lambda line: None))


def reference_request(tmp_path: Path, **options: object) -> BuildRequest:
    engine_options = EngineOptions(**options)  # type: ignore[arg-type]
    drafts = (REFERENCE / "dflash2",)
    return BuildRequest(
        REFERENCE / "target", drafts, tmp_path / "artifact", BACKEND, max_context=1024, options=engine_options
    )


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_every_stage_has_engines_for_rounds_and_prompts(artifact: Artifact) -> None:
    manifest = artifact.manifest
    assert set(manifest.stages) == {
        *("target_advance", "target_advance_sampling", "target_verify", "target_verify_sampling"),
        *("draft_dflash2", "draft_dflash2_sampling", "draft_mtp_3", "draft_mtp_3_sampling"),
    }
    assert not [name for name in manifest.files if name.endswith(".log")]
    for name, stage in manifest.stages.items():
        rows = [engine.sizes["T"] for engine in stage.engines[BACKEND]]
        assert rows == [1 if name.startswith("target_advance") else 8, PROMPT_ROWS], name
        for engine in stage.engines[BACKEND]:
            assert artifact.path(engine.path).stat().st_size > 100_000
            assert engine.library_version.startswith("1.6.1")


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_weights_are_the_checkpoints_own_bytes(artifact: Artifact) -> None:
    manifest = artifact.manifest
    assert manifest.weights
    for name, weight in manifest.weights.items():
        elements = sum(part.length // ITEM_SIZES[part.dtype] for part in weight.parts)
        assert elements == math.prod(weight.shape), name
        for part in weight.parts:
            assert part.offset + part.length <= manifest.files[part.file].size, name
    # Engines hold no weights: they are smaller than the target's first shard, whatever the model's size.
    head = manifest.weights["target.lm_head.weight"]
    assert len(head.parts) == 1
    assert not [name for name in manifest.weights if "lm_head" in name and "+" in name]


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_without_a_gpu_a_run_says_so(artifact: Artifact) -> None:
    assert_fails(dfc("run", artifact.root, "--prompt", "a"), 1, "GPU")


def test_named_gpus_are_those_the_builder_is_told() -> None:
    library = tensorrt_rtx.load_library()
    config = library.Builder(library.Logger(library.Logger.ERROR)).create_builder_config()
    tensorrt_rtx.configure(library, config, EngineOptions(("8.9", "12.0")))
    named = [config.get_compute_capability(index) for index in range(config.num_compute_capabilities)]
    assert named == [library.ComputeCapability.SM89, library.ComputeCapability.SM120]


def test_engines_for_named_gpus_build(tmp_path: Path) -> None:
    named, every = (
        next(compile_stages(reference_request(tmp_path, compute_capabilities=capabilities), {"target_verify"}))
        for capabilities in (("8.9", "12.0"), ())
    )
    assert len(named.data) > 100_000
    assert [weight.name for weight in named.weights] == [weight.name for weight in every.weights]
    assert named.sizes == every.sizes


def test_a_gpu_the_library_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"--compute-capability 9\.0 .* it knows 7\.5, .*12\.0"):
        tuple(compile_stages(reference_request(tmp_path, compute_capabilities=("9.0",)), {"target_advance"}))
    finished = dfc(
        *("build", REFERENCE / "target", "-o", tmp_path / "artifact", "--backend", BACKEND),
        *("--compute-capability", "9.0"),
    )
    assert_fails_after_progress(finished, "--compute-capability 9.0")
    assert not (tmp_path / "artifact").exists()


def assert_fails_after_progress(finished: Any, fragment: str) -> None:
    message = finished.stderr.decode()
    assert finished.returncode == 1
    assert fragment in message.splitlines()[-1]
    assert "Traceback" not in message


def test_a_node_that_the_library_refuses_is_named() -> None:
    stage = StageBuilder("test", "target")
    x = stage.input("x", ir.DataType.FLOAT, (2, 3))
    y = stage.op.MatMul(x, stage.op.Constant(value=ir.tensor(np.zeros((4, 5), np.float32))))
    stage.output("y", y, ir.DataType.FLOAT, (2, 5))
    model = stage.finish().model
    for index, node in enumerate(model.graph):
        node.name = f"{node.op_type}_{index}"
    with pytest.raises(BuildError, match=r"engine test.*MatMul") as caught:
        build_engine(tensorrt_rtx.load_library(), model, "test", EngineOptions(), tensorrt_rtx.configure)
    assert caught.value.log


def float32_attention() -> ir.Model:
    """A graph that the parser takes and the builder does not: it has no such kernel."""
    stage = StageBuilder("test", "target")
    inputs = [stage.input(name, ir.DataType.FLOAT, (1, 2, 8, 64)) for name in "qkv"]
    stage.output("y", stage.op.Relu(stage.op.Attention(*inputs)), ir.DataType.FLOAT, (1, 2, 8, 64))
    model = stage.finish().model
    for index, node in enumerate(model.graph):
        node.name = f"target.layers.3/{node.op_type}_{index}"
    return model


def test_what_the_builder_cannot_build_is_named_with_its_layer(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    with pytest.raises(BuildError) as caught:
        build_engine(
            tensorrt_rtx.load_library(),
            float32_attention(),
            "test",
            EngineOptions(),
            tensorrt_rtx.configure,
            log_file=log,
        )
    named = ("engine test cannot be built in layer {", "at node target.layers.3/Attention_0 (Attention): ")
    assert_one_sentence(caught.value, *named)
    text = log.read_text()
    assert text.startswith("engine test\n")
    assert "Attention operation was not supported" in text
    assert text.splitlines()[-1].startswith("[ERROR]")


def test_the_log_of_a_build_that_fails_is_kept_beside_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(library: Any, model: Any, *arguments: Any, **options: Any) -> bytes:
        return build_engine(library, float32_attention(), *arguments, **options)

    monkeypatch.setattr(tensorrt_rtx, "build_engine", fail)
    with pytest.raises(BuildError, match=r"the library's log is in .*/artifact\.build\.log$"):
        build_artifact(reference_request(tmp_path))
    kept = tmp_path / "artifact.build.log"
    assert list(tmp_path.iterdir()) == [kept]
    assert "engine target_advance, 1 rows" in kept.read_text()
    assert "[ERROR]" in kept.read_text()


def test_a_missing_library_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingLibraryError("TensorRT-RTX is not installed; install dfc with the extra 'rtx'")

    monkeypatch.setattr(tensorrt_rtx, "tensorrt_rtx", missing)
    with pytest.raises(BuildError, match=r"--backend tensorrt-rtx: .*extra 'rtx'"):
        build_artifact(reference_request(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_slice_of_the_27b_model_builds_from_headers_alone(tmp_path: Path) -> None:
    target = write_27b_target(tmp_path / "target", shards=2, layers=4)
    draft = write_27b_dflash2(tmp_path / "draft", 4)
    request = BuildRequest(target, (draft,), tmp_path / "artifact", BACKEND, max_context=1024)
    stages = {"target_verify", "target_verify_sampling", "draft_mtp_3", "draft_dflash2"}
    engines = list(compile_stages(request, stages))
    assert len(engines) == len(stages)
    # 8 GB of weights, and none in the engines.
    assert max(len(engine.data) for engine in engines) < 20e6
    shapes = {weight.name: weight.shape for engine in engines for weight in engine.weights}
    assert shapes["target.lm_head.weight"] == (248320, 5120)
