"""The TensorRT-RTX backend: engines built on any machine, GPU or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dfc.compiler.engines.backend import Backend, CompiledEngine, EngineOptions, EngineRequest, Report
from dfc.compiler.engines.shapes import PROMPT_ROWS
from dfc.compiler.engines.tensorrt_builder import build_engine
from dfc.compiler.engines.tensorrt_stage import compile_shapes
from dfc.compiler.errors import BuildError
from dfc.compiler.export.stage import DFC_DOMAIN, StageGraph
from dfc.compiler.passes.lowering import Operator, Rule
from dfc.compiler.passes.tensorrt.grouped_conv import lower_grouped_conv
from dfc.plugins import bodies
from dfc.plugins.libraries import MissingLibraryError, named_capabilities, tensorrt_rtx

if TYPE_CHECKING:
    from engine_library import IBuilderConfig, Library


def compile_stage(stage: StageGraph, request: EngineRequest, report: Report) -> Iterator[CompiledEngine]:
    """Yield a stage's engines.

    Raises:
        BuildError: TensorRT-RTX is missing or cannot build an engine.
    """
    library = load_library()
    yield from compile_shapes(
        stage,
        request,
        report,
        body_rules(),
        lambda model, name: build_engine(
            library, model, name, request.options, configure, log_file=request.log, progress=request.progress
        ),
    )


def body_rules() -> dict[Operator, Rule]:
    """Return what replaces the custom operators, for this library has no plugins."""
    return {**bodies.rules(), (DFC_DOMAIN, "GroupedConv"): lower_grouped_conv}


def configure(library: Library, config: IBuilderConfig, options: EngineOptions) -> None:
    """Name the GPUs to build for; without any the engine fits every one the library knows."""
    if not options.compute_capabilities:
        return
    known = library.ComputeCapability.__members__
    config.num_compute_capabilities = len(options.compute_capabilities)
    for index, wanted in enumerate(options.compute_capabilities):
        name = f"SM{wanted.replace('.', '')}"
        if name not in known:
            names = ", ".join(named_capabilities(library))
            raise BuildError(f"--compute-capability {wanted} is not one TensorRT-RTX builds for; it knows {names}")
        config.set_compute_capability(known[name], index)


def load_library() -> Library:
    try:
        return tensorrt_rtx()
    except MissingLibraryError as error:
        raise BuildError(f"--backend tensorrt-rtx: {error}") from error


BACKEND = Backend(
    library="tensorrt-rtx",
    library_version=lambda: str(load_library().__version__),
    precision="bfloat16",
    compile_stage=compile_stage,
    prompt_rows=PROMPT_ROWS,
    supports=frozenset({"compute_capabilities", "workspace", "optimization_level"}),
)
