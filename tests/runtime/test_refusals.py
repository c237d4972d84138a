"""What stops a run on a GPU: one sentence each, with what to do. The libraries and the GPU are stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dfc.artifacts import Artifact, Build, Component, Manifest, open_artifact
from dfc.artifacts import Engine as EngineFile
from dfc.plugins.libraries import named_capabilities
from dfc.runtime.engines import tensorrt_rtx
from dfc.runtime.engines.cuda import CudaDevice
from dfc.runtime.engines.refusals import DAMAGED, DRIVER, GPU, MEMORY, VERSION
from dfc.runtime.engines.tensorrt_runtime import TensorRTRuntime
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from tests.artifacts.samples import assert_one_sentence, sample_manifest
from tests.runtime.fake_library import FakeSeverity, fake_library

BACKEND = "tensorrt-rtx"
BUILD = "dfc build tiny --draft tiny-DFlash2 --backend tensorrt-rtx"


def refusal(act: Callable[[], object]) -> RunError:
    with pytest.raises(RunError) as caught:
        act()
    return caught.value


def load(
    tmp_path: Path,
    manifest: Manifest,
    capabilities: tuple[str, ...] = (),
    *,
    wrong: tuple[str, ...] = (),
    built_by: str = "1.6.1.120",
    gpu: str = "9.0",
    engine: object = None,
    says: str = "",
) -> RunError:
    """Load an engine that the library refuses and return the refusal."""

    def deserialize(data: bytes) -> object:
        if says:
            library.loggers[-1].log(FakeSeverity(1), says)
        return engine

    library = fake_library(deserialize)
    device: Any = SimpleNamespace(capability=gpu, name="NVIDIA H200")
    runtime = TensorRTRuntime(
        BACKEND, library, device, lambda engine: None, lambda runtime, data: wrong, named_capabilities(library)
    )
    path = tmp_path / "x.engine"
    path.write_bytes(b"engine")
    file = EngineFile(
        path="stages/target_advance/tensorrt-rtx/rows1_context2048.engine",
        precision="bfloat16",
        library=BACKEND,
        library_version=built_by,
        compute_capabilities=capabilities,
    )
    return refusal(lambda: runtime.load(path, file, manifest))


@pytest.fixture
def manifest() -> Manifest:
    sample = sample_manifest()
    components = {**sample.components, "mtp": Component(source="tiny"), "dflash2": Component(source="tiny-DFlash2")}
    options = {"max_context": "8192", "draft_tokens": "default"}
    return sample.model_copy(update={"components": components, "build": Build(options=options)})


def test_an_engine_for_another_gpu_names_both_and_the_command(tmp_path: Path, manifest: Manifest) -> None:
    error = load(tmp_path, manifest, ("8.9",), gpu="12.0")
    assert_one_sentence(error, "is for compute capability 8.9", "NVIDIA H200, has 12.0", "--compute-capability 12.0")
    command = str(error).partition("with: ")[2]
    assert command == f"{BUILD} --compute-capability 12.0 --max-context 8192 -o ARTIFACT"


def test_a_gpu_that_cannot_be_named_gets_engines_for_all(tmp_path: Path, manifest: Manifest) -> None:
    error = load(tmp_path, manifest, ("8.9", "12.0"))
    assert_one_sentence(error, "is for compute capability 8.9, 12.0", "has 9.0", f"with: {BUILD} --max-context")


def test_a_gpu_that_no_build_fits_is_told_so(tmp_path: Path, manifest: Manifest) -> None:
    error = load(tmp_path, manifest, wrong=(GPU,))
    assert_one_sentence(error, "any of 7.5, 8.9, 12.0", "has 9.0", "1.6.1.120 cannot build for it: run on another GPU")
    assert "dfc build" not in str(error)


@pytest.mark.parametrize("wrong", [(VERSION,), (VERSION, DAMAGED), ()])
def test_an_engine_of_another_version_names_both(tmp_path: Path, manifest: Manifest, wrong: tuple[str, ...]) -> None:
    error = load(tmp_path, manifest, ("9.0",), wrong=wrong, built_by="1.7.1.116")
    parts = ("tensorrt-rtx 1.6.1.120 cannot read", "1.7.1.116 built; install tensorrt-rtx 1.7.1.116", f": {BUILD}")
    assert_one_sentence(error, *parts, "--compute-capability 9.0")


@pytest.mark.parametrize(
    "wrong, parts",
    [
        (DRIVER, ("the NVIDIA driver of this machine is too old for", "update it")),
        (MEMORY, ("NVIDIA H200 has no room for", "smaller --max-context")),
        (DAMAGED, ("x.engine is damaged (the header is torn)", "dfc verify")),
    ],
)
def test_what_the_library_finds_wrong_is_said(
    tmp_path: Path, manifest: Manifest, wrong: str, parts: tuple[str, ...]
) -> None:
    assert_one_sentence(load(tmp_path, manifest, wrong=(wrong,), says="the header\nis torn"), *parts)


def test_a_library_that_does_not_tell_is_quoted(tmp_path: Path, manifest: Manifest) -> None:
    error = load(tmp_path, manifest, says="Error Code 1:\n internal")
    assert_one_sentence(error, "1.6.1.120 cannot load", "H200 of compute capability 9.0 (Error Code 1: internal)")


def test_an_engine_that_cannot_be_made_ready_is_named(tmp_path: Path, manifest: Manifest) -> None:
    error = load(tmp_path, manifest, engine=object(), says="no kernel")
    assert_one_sentence(error, "cannot make", "x.engine ready to run on NVIDIA H200 (no kernel)")
    error = load(tmp_path, manifest, engine=object(), says="CUDA: Out of memory")
    assert_one_sentence(error, "no room for", "--max-context")


def test_the_diagnostics_of_the_library_are_read() -> None:
    pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")
    from dfc.plugins.libraries import tensorrt_rtx as real

    library = real()
    runtime = library.Runtime(library.Logger(library.Logger.INTERNAL_ERROR))
    assert tensorrt_rtx.find_wrong(library, runtime, b"no engine" * 100) == {DAMAGED}
    fake = fake_library(lambda data: None)
    answers: Any = SimpleNamespace(get_engine_validity=lambda data: (2, 1 | 2 | 8))
    assert tensorrt_rtx.find_wrong(fake, answers, b"") == {VERSION, GPU, DRIVER}


def fake_cuda(monkeypatch: pytest.MonkeyPatch, device: object) -> None:
    core: Any = ModuleType("cuda.core")
    core.Device = lambda: device
    core.LegacyPinnedMemoryResource = lambda: SimpleNamespace(allocate=lambda size: fail("CUDA_ERROR_OUT_OF_MEMORY"))
    monkeypatch.setitem(sys.modules, "cuda.core", core)


def fail(message: str) -> None:
    raise RuntimeError(message)


def full_gpu(message: str) -> Any:
    return SimpleNamespace(
        name="NVIDIA H200",
        set_current=lambda: None,
        create_stream=lambda: None,
        allocate=lambda size, stream: fail(message),
    )


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, SimpleNamespace(set_current=lambda: fail("CUDA_ERROR_NO_DEVICE:\nnone")))
    parts = ("no GPU can be used (CUDA_ERROR_NO_DEVICE: none)", "run on a machine with one, or build for onnxruntime")
    assert_one_sentence(refusal(CudaDevice), *parts)


def test_a_missing_cuda_core_names_its_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    assert_one_sentence(refusal(CudaDevice), "cuda-core is not installed", "'rtx' or 'tensorrt'")


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_libs", None)
    device: Any = SimpleNamespace()
    assert_one_sentence(refusal(lambda: tensorrt_rtx.open_runtime(device)), "TensorRT-RTX is missing", "extra 'rtx'")


def test_a_full_gpu_names_the_bytes_and_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, full_gpu("CUDA_ERROR_OUT_OF_MEMORY: the API call failed"))
    driver: Any = ModuleType("cuda.bindings.driver")
    driver.cuMemGetInfo = lambda: (0, 1_000_000, 150_000_000_000)
    monkeypatch.setattr("cuda.bindings.driver", driver, raising=False)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
    error = refusal(lambda: CudaDevice().allocate(2_000_000, "weight target.lm_head.weight"))
    wanted = "no room for weight target.lm_head.weight: 2000000 bytes are wanted, 1000000 of 150000000000 are free"
    assert_one_sentence(error, "NVIDIA H200", wanted, "--spec", "smaller --max-context")
    driver.cuMemGetInfo = lambda: (201, 0, 0)
    assert_one_sentence(refusal(lambda: CudaDevice().allocate(7, "x")), "7 bytes are wanted, fewer are free")
    assert_one_sentence(refusal(lambda: CudaDevice().pin(8, "x")), "no 8 bytes of memory for x", "--max-context")


def test_another_failure_of_the_gpu_is_not_called_full(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda(monkeypatch, full_gpu("CUDA_ERROR_ILLEGAL_ADDRESS"))
    error = refusal(lambda: CudaDevice().allocate(9, "x"))
    assert_one_sentence(error, "gives no 9 bytes for x: CUDA_ERROR_ILLEGAL_ADDRESS")


@pytest.mark.parametrize("spec", ["none", "mtp"])
def test_a_context_larger_than_the_engines_is_refused(small_context: Artifact, spec: str) -> None:
    plan = resolve(SpeculationRequest(spec), small_context.manifest, RunContext("onnxruntime"))
    decoder = load_decoder(small_context, plan, "onnxruntime")
    rows = small_context.manifest.components["target"].parameters["capacity"]
    limits = Limits(max_new=100, max_context=1000, stop_token_ids=frozenset())
    error = refusal(lambda: generate(decoder, [5] * 20, limits))
    assert_one_sentence(error, "does not fit the engines", f"caches have {rows} rows", "larger --max-context")


@pytest.fixture
def small_context(tmp_path: Path, reference: Path) -> Artifact:
    from dfc.compiler.build import BuildRequest, build_artifact

    build_artifact(BuildRequest(reference / "target", (), tmp_path / "artifact", max_context=32))
    return open_artifact(tmp_path / "artifact")


def test_building_for_another_gpu_than_this_machines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from dfc.compiler.engines import tensorrt
    from dfc.compiler.engines.backend import EngineOptions
    from dfc.compiler.errors import BuildError

    monkeypatch.setattr("dfc.plugins.device.compute_capability", lambda: "9.0")
    assert tensorrt._capability(EngineOptions(("9.0",))) == tensorrt._capability(EngineOptions()) == "9.0"
    with pytest.raises(BuildError) as caught:
        tensorrt._capability(EngineOptions(("8.9",)))
    assert_one_sentence(caught.value, "--compute-capability 8.9 is not this machine's 9.0", "leave it out")
