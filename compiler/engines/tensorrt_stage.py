"""The engines of one stage, for both TensorRT backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx_ir as ir

from dfc.compiler.engines.backend import CompiledEngine, EngineRequest, Report
from dfc.compiler.engines.shapes import engine_shapes
from dfc.compiler.engines.tensorrt_graph import engine_graph
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.passes.lowering import Operator, Rule

Build = Callable[[ir.Model, str], bytes]
"""Builds the engine of a graph; the second argument names it in messages."""


def compile_shapes(
    stage: StageGraph, request: EngineRequest, report: Report, plugin_rules: dict[Operator, Rule], build: Build
) -> Iterator[CompiledEngine]:
    """Yield an engine for every shape of a stage.

    Raises:
        BuildError: one cannot be built.
    """
    for shape in engine_shapes(stage, request):
        name = f"{stage.name}, {shape.rows} rows, {shape.context} of context"
        report(f"engine {name}")
        graph = engine_graph(replace(stage, model=stage.model.clone()), shape, plugin_rules)
        yield CompiledEngine(
            file_name=f"rows{shape.rows}_context{shape.context}.engine",
            data=build(graph.model, name),
            sizes={**shape.dimensions, "context": shape.context},
            weights=graph.weights,
        )
