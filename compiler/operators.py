"""Which operators the stages use, and how each backend takes them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from dfc.compiler.build import BuildPlan, author_stages
from dfc.compiler.engines import onnxruntime, tensorrt_rtx
from dfc.compiler.engines.backend import EngineOptions, EngineRequest
from dfc.compiler.engines.shapes import engine_shapes
from dfc.compiler.engines.tensorrt_builder import create_network, parse
from dfc.compiler.engines.tensorrt_graph import engine_graph
from dfc.compiler.export.origins import origins
from dfc.compiler.export.stage import DFC_DOMAIN, OPSET
from dfc.compiler.passes.lowering import Operator, Rule
from dfc.plugins import bodies
from dfc.plugins.library_log import LibraryLog

if TYPE_CHECKING:
    from engine_library import Library

Uses = dict[str, set[str]]
"""For each operator, names of stages or of other operators."""

_LAYER_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


@dataclass(frozen=True)
class BackendUse:
    """What one backend makes of the stages.

    ``became`` has for each operator of the stage graphs the operators in its place; ``parts`` has for each operator of
    the backend's graphs what the library takes it apart into, itself when it has it natively.
    """

    name: str
    became: Uses
    parts: Uses


def stage_operators(plan: BuildPlan) -> Uses:
    """Return the stages that use each operator."""
    found: Uses = defaultdict(set)
    for stage in author_stages(plan):
        for node in stage.model.graph:
            found[operator_name(node)].add(stage.name)
    return found


def onnxruntime_use(plan: BuildPlan, session_graphs: Iterable[tuple[onnx.ModelProto, onnx.ModelProto]]) -> BackendUse:
    """Return onnxruntime's part; each of `session_graphs` is an engine and what a session without optimisation runs."""
    became: Uses = defaultdict(set)
    for stage in author_stages(plan):
        count_lowered(became, onnxruntime.lower_stage(stage).graph)
    parts: Uses = defaultdict(set)
    for engine, session in session_graphs:
        kept = {node.name: _qualified(node.domain, node.op_type) for node in session.graph.node}
        for node in engine.graph.node:
            # What a function is taken apart into has names of its own.
            operator = _qualified(node.domain, node.op_type)
            parts[operator].add(kept.get(node.name, "constant" if operator == "Constant" else "function inlined"))
    return BackendUse("onnxruntime", became, parts)


def tensorrt_rtx_use(plan: BuildPlan, library: Library) -> BackendUse:
    """Return TensorRT-RTX's part: `library` is its bindings module, whose parser reads every graph."""
    became: Uses = defaultdict(set)
    parts: Uses = defaultdict(set)
    for model in _engine_models(plan, tensorrt_rtx.body_rules()):
        count_lowered(became, model.graph)
        for operator, layer in network_layers(library, model):
            parts[operator].add(layer)
    return BackendUse("tensorrt-rtx", became, parts)


def tensorrt_use(plan: BuildPlan) -> BackendUse:
    """Return full TensorRT's part: custom operators stay nodes, for plugins; no library reads the graphs."""
    became: Uses = defaultdict(set)

    def stay(op: Any, node: ir.Node) -> list[ir.Value]:
        attributes = {key: attribute.value for key, attribute in node.attributes.items()}
        outputs = getattr(op, node.op_type)(*node.inputs, **attributes, _domain=DFC_DOMAIN, _outputs=len(node.outputs))
        return [outputs] if len(node.outputs) == 1 else list(outputs)

    for model in _engine_models(plan, dict.fromkeys(bodies.rules(), stay)):
        count_lowered(became, model.graph)
    return BackendUse("tensorrt", became, {})


def count_lowered(became: Uses, graph: ir.Graph) -> None:
    """Add what a lowered graph has in the place of the stage graph's operators."""
    for node in graph:
        for origin in origins(node):
            became[_qualified(origin.domain, origin.operator)].add(operator_name(node))


def network_layers(library: Library, model: ir.Model) -> Iterator[tuple[str, str]]:
    """Yield, for the nodes of a graph, the operator and the kind of a layer that the parser makes of it."""
    log = LibraryLog()
    builder = library.Builder(log.logger(library))
    network = create_network(library, builder)
    parse(library, network, model, "for the table of operators", log)
    by_name = {node.name: operator_name(node) for node in model.graph}
    if "Constant" in by_name.values():
        # It becomes a layer only together with the node that reads it.
        yield "Constant", "constant"
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for name in _LAYER_NODE.findall(layer.metadata):
            if name in by_name:
                yield by_name[name], layer.type.name


def operator_name(node: ir.Node) -> str:
    """Return an operator's name with its domain, which the standard one lacks."""
    return _qualified(node.domain, node.op_type)


def is_standard(operator: str) -> bool:
    """Return whether ONNX itself has an operator: onnxruntime has some of its own in the standard domain."""
    return "::" not in operator and bool(onnx.defs.has(operator))


def has_function(operator: str) -> bool:
    """Return whether ONNX defines an operator by others."""
    if not is_standard(operator):
        return False
    # onnx's own type hints leave both out.
    schema: Any = onnx.defs.get_schema(operator, OPSET)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _qualified(domain: str, operator: str) -> str:
    return f"{domain}::{operator}" if domain not in ("", "ai.onnx") else operator


def _engine_models(plan: BuildPlan, rules: dict[Operator, Rule]) -> Iterator[ir.Model]:
    request = EngineRequest(plan.round_rows, plan.capacity, EngineOptions())
    for stage in author_stages(plan):
        for shape in engine_shapes(stage, request):
            yield engine_graph(replace(stage, model=stage.model.clone()), shape, rules).model
