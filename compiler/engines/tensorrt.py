"""The TensorRT backend: engines for the GPU of the machine that builds, with dfc's plugins in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.engines.backend import Backend, CompiledEngine, EngineOptions, EngineRequest, Report
from dfc.compiler.engines.shapes import PROMPT_ROWS
from dfc.compiler.engines.tensorrt_builder import build_engine
from dfc.compiler.engines.tensorrt_stage import compile_shapes
from dfc.compiler.errors import BuildError
from dfc.compiler.export.stage import DFC_DOMAIN, StageGraph
from dfc.compiler.passes.lowering import Operator, Rule
from dfc.plugins.libraries import MissingLibraryError, tensorrt

if TYPE_CHECKING:
    from engine_library import IBuilderConfig, Library


def compile_stage(stage: StageGraph, request: EngineRequest, report: Report) -> Iterator[CompiledEngine]:
    """Yield a stage's engines; custom operators become nodes that TensorRT resolves to dfc's plugins.

    Raises:
        BuildError: TensorRT or a GPU is missing, or an engine cannot be built.
    """
    library = load_library()
    from dfc.plugins.tensorrt_plugins import register_once

    register_once(_capability(request.options))
    override = 1 << int(library.OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE)
    yield from compile_shapes(
        stage,
        request,
        report,
        plugin_rules(),
        lambda model, name: build_engine(
            library, model, name, request.options, configure, override, request.log, request.progress
        ),
    )


def plugin_rules() -> dict[Operator, Rule]:
    """Return what gives each custom operator's node the name of the plugin for its inputs."""
    from dfc.plugins.tensorrt_plugins import PLUGIN_NAMES

    def to_plugin(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        name = PLUGIN_NAMES[node.op_type, len(node.inputs)]
        attributes = {key: attribute.value for key, attribute in node.attributes.items()}
        outputs = getattr(op, name)(*node.inputs, **attributes, _domain=DFC_DOMAIN, _outputs=len(node.outputs))
        return [outputs] if len(node.outputs) == 1 else outputs

    return {(DFC_DOMAIN, operator): to_plugin for operator, _ in PLUGIN_NAMES}


def configure(library: Library, config: IBuilderConfig, options: EngineOptions) -> None:
    """Make a row's logits independent of how many rows are verified with it: losslessness rests on that."""
    config.set_flag(library.BuilderFlag.DISTRIBUTIVE_INDEPENDENCE)


def _capability(options: EngineOptions) -> str:
    if len(options.compute_capabilities) > 1:
        raise BuildError("--backend tensorrt builds for one GPU; give --compute-capability once or leave it out")
    from dfc.plugins.device import compute_capability

    try:
        here = compute_capability()
    except MissingLibraryError as error:
        raise BuildError(f"--backend tensorrt needs a GPU to build for: {error}") from error
    for wanted in options.compute_capabilities:
        if wanted != here:
            raise BuildError(
                f"--compute-capability {wanted} is not this machine's {here}, which is what TensorRT builds for; leave"
                " it out, or build on a machine with that GPU"
            )
    return here


def _machine() -> str:
    """Return the GPU's name and capability: the builder times its kernels on it."""
    from dfc.plugins.device import device_name

    try:
        return f"{device_name()} {_capability(EngineOptions())}"
    except MissingLibraryError as error:
        raise BuildError(f"--backend tensorrt needs a GPU to build for: {error}") from error


def load_library() -> Library:
    try:
        return tensorrt()
    except MissingLibraryError as error:
        raise BuildError(f"--backend tensorrt: {error}") from error


BACKEND = Backend(
    library="tensorrt",
    library_version=lambda: str(load_library().__version__),
    precision="bfloat16",
    compile_stage=compile_stage,
    prompt_rows=PROMPT_ROWS,
    machine=_machine,
    supports=frozenset({"compute_capabilities", "workspace", "optimization_level"}),
)
