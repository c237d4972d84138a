"""Replacing operators of a stage graph by the nodes a backend wants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.nodes import NodeBuilder
from dfc.compiler.export.origins import last_node, nodes_after, origin_text, set_origins

Operator = tuple[str, str]
"""Domain and name."""

Rule = Callable[[OpBuilder, ir.Node], Sequence[ir.Value] | None]
"""Appends the nodes that stand for `node` and returns the values of its outputs; None: the node stays."""

Rewrite = Callable[[ir.Graph], None]
"""Changes a graph in place where more than one node takes part."""


def continue_building(graph: ir.Graph) -> OpBuilder:
    """Return a builder that appends to a graph which an earlier builder made.

    Builders name small constants by their value, so the earlier ones get names that do not clash.
    """
    taken = sum(name.startswith("constant.") for name in graph.initializers)
    for value in list(graph.initializers.values()):
        if not isinstance(value.const_value, ir.ExternalTensor) and not str(value.name).startswith("constant."):
            value.name = f"constant.{taken}"
            taken += 1
    return NodeBuilder(graph).op


def lower(model: ir.Model, rules: Mapping[Operator, Rule]) -> None:
    """Apply to every node the rule of its operator, in place; nodes without a rule stay."""
    graph = model.graph
    nodes = list(graph)
    graph.remove(nodes)
    op = continue_building(graph)
    for node in nodes:
        rule = rules.get((node.domain, node.op_type))
        last = last_node(graph)
        outputs = None if rule is None else rule(op, node)
        if outputs is None:
            graph.append(node)
        else:
            replace_outputs(graph, node.outputs, outputs)
            set_origins(nodes_after(graph, last), [node])
            detach(node)


def drop_unused(graph: ir.Graph, operator: Operator) -> None:
    """Remove the nodes of an operator that nothing reads."""
    for node in reversed(list(graph)):
        if (node.domain, node.op_type) == operator and not any(
            output.uses() or output.is_graph_output() for output in node.outputs
        ):
            detach(node)
            graph.remove(node)


def replace_outputs(graph: ir.Graph, old: Sequence[ir.Value], new: Iterable[ir.Value]) -> None:
    """Let every user of the old values, the graph's outputs included, take the new ones."""
    for before, after in zip(old, new, strict=True):
        if after.dtype is None and before.dtype is not None:
            after.dtype = before.dtype
        if before.is_graph_output():
            after.name, after.shape = before.name, before.shape
            before.name = None
        before.replace_all_uses_with(after, replace_graph_outputs=True)


def stored_tensor(value: ir.Value | None) -> ir.ExternalTensor | None:
    """Return the checkpoint's tensor that a value is, converted or not; None for a value that is computed."""
    while value is not None:
        if isinstance(value.const_value, ir.ExternalTensor):
            return value.const_value
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return None


def detach(node: ir.Node) -> None:
    """Take a replaced node out of the users of its inputs."""
    for index in range(len(node.inputs)):
        node.replace_input_with(index, None)


def name_nodes(model: ir.Model) -> None:
    """Give every node and inner value a name that depends on nothing but the graph, so that builds repeat.

    A node's name begins with what it stands for: ``target.layers.3/Linear_17/Gemm_40``.
    """
    graph = model.graph
    for position, node in enumerate(graph):
        name = f"{node.op_type}_{position}"
        source = origin_text(node)
        node.name = f"{source}/{name}" if source else name
        for index, output in enumerate(node.outputs):
            if output.name and not output.is_graph_output():
                output.name = f"{name}:{index}"


def used_opsets(model: ir.Model) -> None:
    """Import exactly the operator domains that the graph uses."""
    for domain in [domain for domain in model.graph.opset_imports if domain]:
        del model.graph.opset_imports[domain]
    for node in model.graph:
        if node.domain:
            model.graph.opset_imports.setdefault(node.domain, 1)
