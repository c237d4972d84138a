"""The kernels compile for every capability on a machine without a GPU, and take what their launches pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dfc.plugins import compilation
from dfc.plugins.compilation import KernelCompilationError, check_parameters, compile_kernel, measure_resources
from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.kernel import Kernel
from dfc.plugins.selector.launch import SelectorGeometry
from dfc.plugins.top_candidates.launch import TopCandidatesGeometry
from tests.plugins.geometries import CAPABILITIES, convolutions, selectors

FLOATS = ("float32", "float32", "float32")

# A published checkpoint's geometries (the others differ in the width alone), and the corners: most registers, narrow
# vectors, largest thread blocks.
KERNELS: dict[str, Kernel] = {
    **{f"{geometry.side} {geometry.residual_dtype}": geometry.kernel() for geometry in convolutions(5120)},
    **{f"selector {geometry.sampled}": geometry.kernel() for geometry in selectors(8)},
    "most taps": GroupedConvGeometry(5120, 8, 16, 1, *FLOATS, "float32").kernel(),
    "vector across groups": GroupedConvGeometry(96, 8, 3, 1, "bfloat16", "float32", "float32", "bfloat16").kernel(),
    "one channel at a time": GroupedConvGeometry(33, 8, 3, 0, *FLOATS).kernel(),
    "long block": SelectorGeometry(16, 256, 31, True, "int64", "float32", "float32", "bfloat16").kernel(),
    "most candidates": SelectorGeometry(32, 256, 31, True, "int32", "float32", "float32", "bfloat16").kernel(),
    "largest": SelectorGeometry(32, 512, 31, True, "int64", *FLOATS).kernel(),
    "between": SelectorGeometry(21, 256, 31, True, "int32", "bfloat16", "bfloat16", "bfloat16").kernel(),
    "top candidates": TopCandidatesGeometry(16, 248320, 248077, "bfloat16").kernel(),
    "most top candidates": TopCandidatesGeometry(32, 248320, 248320, "float32").kernel(),
    "one top candidate": TopCandidatesGeometry(1, 33, 7, "bfloat16").kernel(),
    "smallest": SelectorGeometry(1, 1, 1, True, "int64", *FLOATS).kernel(),
}


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", KERNELS)
def test_no_kernel_spills(name: str, capability: str) -> None:
    resources = measure_resources(KERNELS[name], capability)
    print(f"{name}, {capability}: {resources}")
    assert resources.stack_bytes == 0
    assert resources.spill_bytes == 0
    # What every GPU of these capabilities gives a thread block without asking.
    assert resources.shared_bytes <= 48 * 1024


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_ptx_is_for_the_capability_and_old_enough_for_the_driver(capability: str, tmp_path: Path) -> None:
    compiled = compile_kernel(KERNELS["most taps"], capability, tmp_path)
    assert f".target sm_{capability.replace('.', '')}" in compiled.ptx
    # A driver refuses PTX newer than itself: 9.0 is what CUDA 13.0's reads.
    assert ".version 9.0" in compiled.ptx


def test_a_compilation_leaves_the_interpreters_own_bytes_alone(tmp_path: Path) -> None:
    """A log without a word has one byte, and Python keeps one object for each value of a single byte."""
    compile_kernel(KERNELS["smallest"], "9.0", tmp_path)
    assert bytes([32])[0] == 32


def test_a_second_compilation_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS["smallest"]
    first = compile_kernel(kernel, "9.0", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(compilation, "_compile", lambda *_: pytest.fail("compiled again"))
        assert compile_kernel(kernel, "9.0", tmp_path) == first
    others = [
        compile_kernel(kernel, "8.0", tmp_path),
        compile_kernel(SelectorGeometry(2, 1, 1, True, "int64", *FLOATS).kernel(), "9.0", tmp_path),
    ]
    assert len({compiled.source_sha256 for compiled in (first, *others)}) == 3
    assert len({compiled.ptx_sha256 for compiled in (first, *others)}) == 3


def test_a_header_is_part_of_the_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KERNELS["smallest"]
    first = compile_kernel(kernel, "9.0", tmp_path)
    changed = {name: f"{text}\n// changed\n" for name, text in kernel.headers.items()}
    monkeypatch.setattr(Kernel, "headers", changed)
    assert compile_kernel(kernel, "9.0", tmp_path).source_sha256 != first.source_sha256


@pytest.mark.parametrize("damage", [lambda text: text[:-40], lambda text: text.replace("mov", "add", 1), lambda _: ""])
def test_a_damaged_cache_file_is_compiled_anew(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    kernel = KERNELS["smallest"]
    first = compile_kernel(kernel, "9.0", tmp_path)
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    assert damage(text) != text
    file.write_text(damage(text))
    assert compile_kernel(kernel, "9.0", tmp_path) == first
    assert file.read_text() == text


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert compile_kernel(KERNELS["smallest"], "9.0", tmp_path / "file" / "cache").name == "dfc_candidate_selector"


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compile_kernel(KERNELS["smallest"], "9.0")
    assert [file.suffix for file in (tmp_path / "dfc" / "kernels").iterdir()] == [".json"]


def test_a_launch_that_passes_other_parameters_is_refused(tmp_path: Path) -> None:
    kernel = KERNELS["most taps"]
    with pytest.raises(KernelCompilationError, match=r"takes \(u64, u64, u64, u64, u32, u32, u64\) but its plugin"):
        compile_kernel(replace(kernel, parameters=kernel.parameters[:-1]), "9.0", tmp_path)
    # Also where the PTX comes from the cache.
    with pytest.raises(KernelCompilationError, match="its plugin passes"):
        compile_kernel(replace(kernel, parameters=(*kernel.parameters, "u64")), "9.0", tmp_path)


def test_parameters_as_newer_compilers_write_them() -> None:
    ptx = ".visible .entry k(\n.param .u64 .ptr .align 1 k_0,\n.param .b32 k_1,\n.param .align 8 .b64 k_2\n)\n{}"
    check_parameters(ptx, "k", ("u64", "u32", "u64"))
    with pytest.raises(KernelCompilationError, match="no kernel other"):
        check_parameters(ptx, "other", ())


def test_a_source_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    kernel = KERNELS["smallest"]
    broken = replace(kernel, defines=tuple((name, value) for name, value in kernel.defines if name != "RANK"))
    with pytest.raises(KernelCompilationError, match='"RANK" is undefined'):
        compile_kernel(broken, "9.0", tmp_path)


@pytest.mark.parametrize("capability", ["90", "9", "sm_90", "9.0a", ""])
def test_a_capability_of_another_form_is_refused(capability: str, tmp_path: Path) -> None:
    with pytest.raises(KernelCompilationError, match="compute capability"):
        compile_kernel(KERNELS["smallest"], capability, tmp_path)


def test_a_capability_that_the_compiler_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelCompilationError, match=r"compute_35|gpu-architecture"):
        compile_kernel(KERNELS["smallest"], "3.5", tmp_path)
