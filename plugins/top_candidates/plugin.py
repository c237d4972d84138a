"""The top candidates as a TensorRT quick plugin: `dfc::TopCandidates`."""

# TensorRT reads annotations as objects, so that they cannot be postponed here.
import tensorrt as trt
import tensorrt.plugin as trtp

from dfc.plugins.compilation import compile_kernel
from dfc.plugins.tensorrt_plugins import Implementation, combination, dtype, fixed_dimension, implementation
from dfc.plugins.top_candidates.launch import TopCandidatesGeometry

NAME = "dfc::TopCandidates"


def register(capability: str) -> None:
    """Register the plugin, its kernel compiled for a compute capability such as `9.0`."""

    def describe(logits: trtp.TensorDesc, k: int, vocab_size: int) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        shape = (logits.shape_expr[0], logits.shape_expr[1], trtp.ShapeExpr(k))
        values, ids = (
            trtp.TensorDesc(trtp.ShapeExprs.from_tuple(shape), element)
            for element in (logits.dtype, trt.DataType.INT64)
        )
        return values, ids

    def tune(logits: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]) -> list[trtp.AutoTuneCombination]:
        return [combination((logits, *outputs))]

    def implement(
        logits: trtp.TensorDesc, k: int, vocab_size: int, outputs: tuple[trtp.TensorDesc], tactic: int
    ) -> Implementation:
        geometry = TopCandidatesGeometry(
            candidates=k,
            width=fixed_dimension(logits, 2, "logits"),
            vocab_size=vocab_size,
            logit_dtype=dtype(logits),
        )
        kernel = compile_kernel(geometry.kernel(), capability)
        return implementation(kernel, geometry.launch(logits.shape_expr[0], logits.shape_expr[1]))

    trtp.register(NAME)(describe)
    trtp.autotune(NAME)(tune)
    trtp.aot_impl(NAME)(implement)
