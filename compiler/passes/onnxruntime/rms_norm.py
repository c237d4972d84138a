"""RMSNormalization becomes the operator that also adds, where it normalises a sum."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.origins import made_by, set_origins
from dfc.compiler.passes.lowering import continue_building, detach, replace_outputs


def lower_rms_norm(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Return the normed rows."""
    x, weight = node.inputs
    epsilon = node.attributes["epsilon"].as_float()
    return [op.SimplifiedLayerNormalization(x, weight, axis=-1, epsilon=epsilon, stash_type=1)]


def fuse_add_and_norm(graph: ir.Graph) -> None:
    """Let one node add the residual and normalise the sum; both results stay available."""
    op = continue_building(graph)
    for node in [node for node in graph if node.op_type == "RMSNormalization"]:
        total, weight = node.inputs
        add = None if total is None else total.producer()
        if add is None or add.op_type != "Add" or any(value is None or value.is_initializer() for value in add.inputs):
            continue
        epsilon = node.attributes["epsilon"].as_float()
        normed, mean, deviation, summed = op.SkipSimplifiedLayerNormalization(
            *add.inputs, weight, epsilon=epsilon, _domain="com.microsoft", _outputs=4
        )
        set_origins([made_by(normed)], [add, node])
        # An output without a name is not computed.
        mean.name = deviation.name = ""
        replace_outputs(graph, [*add.outputs, *node.outputs], [summed, normed])
        for replaced in (node, add):
            detach(replaced)
        graph.remove([node, add])
    graph.sort()
