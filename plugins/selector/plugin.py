"""The selector as TensorRT quick plugins: `dfc::CandidateSelector`, greedy, and `dfc::SampledCandidateSelector`."""

# TensorRT reads annotations as objects, so that they cannot be postponed here.
from collections.abc import Sequence

import tensorrt as trt
import tensorrt.plugin as trtp

from dfc.plugins.compilation import compile_kernel
from dfc.plugins.selector.launch import SelectorGeometry
from dfc.plugins.tensorrt_plugins import Implementation, combination, dtype, fixed_dimension, implementation

NAME = "dfc::CandidateSelector"
SAMPLED_NAME = "dfc::SampledCandidateSelector"


def register(capability: str) -> None:
    """Register both plugins, their kernels compiled for a compute capability such as `9.0`."""

    def implement(tensors: Sequence[trtp.TensorDesc], max_slots: int, sampled: bool) -> Implementation:
        candidate_ids, candidate_logits, projected, predecessor_codebook = tensors[:4]
        geometry = SelectorGeometry(
            candidates=fixed_dimension(candidate_ids, 2, "candidate_ids"),
            rank=fixed_dimension(predecessor_codebook, 1, "predecessor_codebook"),
            max_slots=max_slots,
            sampled=sampled,
            id_dtype=dtype(candidate_ids),
            logit_dtype=dtype(candidate_logits),
            projected_dtype=dtype(projected),
            codebook_dtype=dtype(predecessor_codebook),
        )
        kernel = compile_kernel(geometry.kernel(), capability)
        batch, slots = candidate_ids.shape_expr[0], candidate_ids.shape_expr[1]
        return implementation(kernel, geometry.launch(batch, slots))

    def describe(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        max_slots: int,
    ) -> trtp.TensorDesc:
        return _tokens(candidate_ids)

    def tune(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        outputs: tuple[trtp.TensorDesc],
    ) -> list[trtp.AutoTuneCombination]:
        inputs = (candidate_ids, candidate_logits, projected, predecessor_codebook, successor_codebook, anchor)
        return [combination((*inputs, *outputs))]

    def implement_greedy(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        max_slots: int,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> Implementation:
        return implement((candidate_ids, candidate_logits, projected, predecessor_codebook), max_slots, sampled=False)

    def describe_sampled(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        temperature: trtp.TensorDesc,
        uniforms: trtp.TensorDesc,
        max_slots: int,
    ) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        q = trtp.TensorDesc(candidate_logits.shape_expr, trt.DataType.FLOAT)
        return _tokens(candidate_ids), q

    def tune_sampled(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        temperature: trtp.TensorDesc,
        uniforms: trtp.TensorDesc,
        outputs: tuple[trtp.TensorDesc],
    ) -> list[trtp.AutoTuneCombination]:
        inputs = (candidate_ids, candidate_logits, projected, predecessor_codebook, successor_codebook, anchor)
        return [combination((*inputs, temperature, uniforms, *outputs))]

    def implement_sampled(
        candidate_ids: trtp.TensorDesc,
        candidate_logits: trtp.TensorDesc,
        projected: trtp.TensorDesc,
        predecessor_codebook: trtp.TensorDesc,
        successor_codebook: trtp.TensorDesc,
        anchor: trtp.TensorDesc,
        temperature: trtp.TensorDesc,
        uniforms: trtp.TensorDesc,
        max_slots: int,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> Implementation:
        return implement((candidate_ids, candidate_logits, projected, predecessor_codebook), max_slots, sampled=True)

    trtp.register(NAME)(describe)
    trtp.autotune(NAME)(tune)
    trtp.aot_impl(NAME)(implement_greedy)
    trtp.register(SAMPLED_NAME)(describe_sampled)
    trtp.autotune(SAMPLED_NAME)(tune_sampled)
    trtp.aot_impl(SAMPLED_NAME)(implement_sampled)


def _tokens(candidate_ids: trtp.TensorDesc) -> trtp.TensorDesc:
    """Describe tokens [N, S] of candidates [N, S, K]."""
    shape = trtp.ShapeExprs.from_tuple((candidate_ids.shape_expr[0], candidate_ids.shape_expr[1]))
    return trtp.TensorDesc(shape, candidate_ids.dtype)
