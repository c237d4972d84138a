"""The onnxruntime backend: the lowered stage graph is the engine; weights stay in the artifact's weight files."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from dfc.compiler.engines.backend import Backend, CompiledEngine, EngineRequest, Report
from dfc.compiler.export.stage import DFC_DOMAIN, StageGraph
from dfc.compiler.passes.lowering import Operator, Rule, drop_unused, lower, name_nodes, used_opsets
from dfc.compiler.passes.merge_linears import merge_linears
from dfc.compiler.passes.onnxruntime.add_counts import lower_add_counts
from dfc.compiler.passes.onnxruntime.block_attention import lower_block_attention
from dfc.compiler.passes.onnxruntime.cached_attention import lower_cached_attention
from dfc.compiler.passes.onnxruntime.causal_convolution import (
    lower_causal_convolution,
    lower_causal_convolution_of_one_row,
)
from dfc.compiler.passes.onnxruntime.commit_states import commit_states
from dfc.compiler.passes.onnxruntime.dequantised import DEQUANTISED, lower_dequantised
from dfc.compiler.passes.onnxruntime.experts import lower_experts
from dfc.compiler.passes.onnxruntime.gated_delta_net import lower_gated_delta_net
from dfc.compiler.passes.onnxruntime.gated_rms_norm import (
    lower_gated_rms_norm,
    lower_gated_rms_norm_of_one_row,
)
from dfc.compiler.passes.onnxruntime.keep_heaviest import lower_keep_heaviest
from dfc.compiler.passes.onnxruntime.linear import lower_linear
from dfc.compiler.passes.onnxruntime.query_and_gate import split_query_and_gate
from dfc.compiler.passes.onnxruntime.rms_norm import fuse_add_and_norm, lower_rms_norm
from dfc.compiler.passes.onnxruntime.swish import lower_swish
from dfc.compiler.passes.onnxruntime.used_rows import lower_used_rows
from dfc.plugins import bodies

RULES: dict[Operator, Rule] = {
    (DFC_DOMAIN, "Linear"): lower_linear,
    DEQUANTISED: lower_dequantised,
    (DFC_DOMAIN, "Experts"): lower_experts,
    (DFC_DOMAIN, "CachedAttention"): lower_cached_attention,
    (DFC_DOMAIN, "BlockAttention"): lower_block_attention,
    (DFC_DOMAIN, "CausalConvolution"): lower_causal_convolution,
    (DFC_DOMAIN, "GatedDeltaNet"): lower_gated_delta_net,
    (DFC_DOMAIN, "GatedRMSNorm"): lower_gated_rms_norm,
    (DFC_DOMAIN, "UsedRows"): lower_used_rows,
    (DFC_DOMAIN, "KeepHeaviest"): lower_keep_heaviest,
    (DFC_DOMAIN, "AddCounts"): lower_add_counts,
    ("", "RMSNormalization"): lower_rms_norm,
    ("", "Swish"): lower_swish,
}

ONE_ROW_RULES: dict[Operator, Rule] = {
    (DFC_DOMAIN, "CausalConvolution"): lower_causal_convolution_of_one_row,
    (DFC_DOMAIN, "GatedRMSNorm"): lower_gated_rms_norm_of_one_row,
}
"""What is faster where a call of a round has one row, as plain decoding has."""


def compile_graph(stage: StageGraph) -> bytes:
    """Return the ONNX file of a stage, for `onnxruntime`; the stage's graph is used up.

    External data locations are relative to the artifact's ``weights`` directory.
    """
    data: bytes = ir.serde.serialize_model(lower_stage(stage)).SerializeToString(deterministic=True)
    return data


def lower_stage(stage: StageGraph) -> ir.Model:
    """Return a stage's graph in onnxruntime's operators; the stage's own graph is used up."""
    model = stage.model
    lower(model, {(DFC_DOMAIN, "QueryAndGate"): split_query_and_gate})
    # An embedding's own rows are all that is read of it.
    drop_unused(model.graph, DEQUANTISED)
    merge_linears(model.graph)
    commit_states(model.graph, stage.round_rows)
    fuse_add_and_norm(model.graph)
    lower(model, RULES | (ONE_ROW_RULES if stage.round_rows == 1 else {}) | bodies.rules())
    drop_unused(model.graph, DEQUANTISED)
    used_opsets(model)
    name_nodes(model)
    return model


def compile_stage(stage: StageGraph, request: EngineRequest, report: Report) -> Iterator[CompiledEngine]:
    """Yield the one engine of a stage: it takes calls of any size."""
    report(f"stage {stage.name}")
    yield CompiledEngine("model.onnx", compile_graph(stage))


BACKEND = Backend("onnxruntime", lambda: ">=1.32", "float32", compile_stage)
