"""A stage graph as TensorRT and TensorRT-RTX take it: static shapes, weights as inputs, standard operators."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from dfc.artifacts import Tensor
from dfc.compiler.export.stage import DFC_DOMAIN, StageGraph
from dfc.compiler.passes.lowering import Operator, Rule, lower, name_nodes, used_opsets
from dfc.compiler.passes.merge_linears import merge_linears
from dfc.compiler.passes.tensorrt.add_counts import lower_add_counts
from dfc.compiler.passes.tensorrt.block_attention import block_attention_rule
from dfc.compiler.passes.tensorrt.cached_attention import cached_attention_rule
from dfc.compiler.passes.tensorrt.causal_convolution import causal_convolution_rule
from dfc.compiler.passes.tensorrt.experts import experts_rule
from dfc.compiler.passes.tensorrt.gated_delta_net import gated_delta_net_rule
from dfc.compiler.passes.tensorrt.gated_rms_norm import lower_gated_rms_norm, lower_swish
from dfc.compiler.passes.tensorrt.keep_heaviest import lower_keep_heaviest
from dfc.compiler.passes.tensorrt.linear import lower_linear, lower_query_and_gate
from dfc.compiler.passes.tensorrt.shapes import EngineShape, set_static_shapes, static_dimension
from dfc.compiler.passes.tensorrt.tensor_scatter import lower_tensor_scatter
from dfc.compiler.passes.tensorrt.used_rows import used_rows_rule
from dfc.compiler.passes.tensorrt.weight_inputs import (
    WeightInput,
    drop_unused_inputs,
    one_input_per_lookup,
    take_weights_out,
)

CACHE_DTYPE = "bfloat16"


@dataclass(frozen=True)
class EngineGraph:
    """The graph of one engine and its tensors, all of static shape."""

    model: ir.Model
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[WeightInput, ...]


def rules(shape: EngineShape) -> dict[Operator, Rule]:
    """Return what replaces each operator, for an engine's shape."""
    found: dict[Operator, Rule] = {
        (DFC_DOMAIN, "Linear"): lower_linear,
        (DFC_DOMAIN, "Experts"): experts_rule(shape),
        (DFC_DOMAIN, "QueryAndGate"): lower_query_and_gate,
        (DFC_DOMAIN, "UsedRows"): used_rows_rule(shape),
        (DFC_DOMAIN, "CachedAttention"): cached_attention_rule(shape),
        (DFC_DOMAIN, "CausalConvolution"): causal_convolution_rule(shape),
        (DFC_DOMAIN, "GatedDeltaNet"): gated_delta_net_rule(shape),
        (DFC_DOMAIN, "GatedRMSNorm"): lower_gated_rms_norm,
        (DFC_DOMAIN, "KeepHeaviest"): lower_keep_heaviest,
        (DFC_DOMAIN, "AddCounts"): lower_add_counts,
        ("", "Swish"): lower_swish,
        ("", "TensorScatter"): lower_tensor_scatter,
    }
    if "S" in shape.dimensions:
        found[DFC_DOMAIN, "BlockAttention"] = block_attention_rule(shape)
    return found


def engine_graph(stage: StageGraph, shape: EngineShape, plugin_rules: dict[Operator, Rule]) -> EngineGraph:
    """Return a stage's graph for one engine; the stage's own graph is used up."""
    model, graph = stage.model, stage.model.graph
    set_static_shapes(graph, shape)
    _narrow_caches(graph, stage)
    merge_linears(graph)
    weights = take_weights_out(graph)
    lower(model, rules(shape) | plugin_rules)
    RemoveUnusedNodesPass()(model)
    kept = drop_unused_inputs(graph, weights)
    kept = one_input_per_lookup(graph, kept)
    used_opsets(model)
    name_nodes(model)
    inputs, outputs = (tuple(_static(tensor, shape) for tensor in tensors) for tensors in (stage.inputs, stage.outputs))
    return EngineGraph(model, inputs, outputs, kept)


def _narrow_caches(graph: ir.Graph, stage: StageGraph) -> None:
    caches = {tensor.name for tensor in (*stage.inputs, *stage.outputs) if tensor.role == "cache"}
    for value in (*graph.inputs, *graph.outputs):
        if value.name in caches:
            value.dtype = ir.DataType.BFLOAT16


def _static(tensor: Tensor, shape: EngineShape) -> Tensor:
    dtype = CACHE_DTYPE if tensor.role == "cache" else tensor.dtype
    static = tuple(static_dimension(dimension, shape) for dimension in tensor.shape)
    return tensor.model_copy(update={"dtype": dtype, "shape": static})
