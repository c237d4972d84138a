"""DFlash2 drafters (semantics A and B): stage `draft_dflash2`."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from dfc.compiler.checkpoint import DFlash2Spec, TargetSpec, is_dflash2, load_dflash2
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.models.block_drafter import (
    Block,
    BlockDrafter,
    Context,
    Drafting,
    block_drafter_loader,
    block_drafter_stage,
    scaled,
)
from dfc.compiler.models.proposals import Proposal, Walk


def dflash2_stage(spec: DFlash2Spec, target: TargetSpec, drafting: Drafting) -> StageGraph:
    """Build `draft_dflash2`, as `block_drafter_stage` says; convolutions end at the runtime block's border."""
    return block_drafter_stage("dflash2", spec, target, drafting, partial(_layer, spec), partial(_select, spec))


def _layer(
    spec: DFlash2Spec, drafter: BlockDrafter, hidden: ir.Value, index: int, context: Context, block: Block
) -> ir.Value:
    """Run one layer over the block; convolutions stand around both sublayers (semantics B.3)."""
    prefix = f"{spec.prefix}layers.{index}"
    normed = drafter.norm(hidden, f"{prefix}.input_layernorm.weight")
    convolution = _Convolution(spec, drafter, normed, f"{prefix}.attention_conv")
    mixed = drafter.attention(convolution.prepare(normed), index, context, block)
    hidden = convolution.finish(mixed, hidden)
    normed = drafter.norm(hidden, f"{prefix}.post_attention_layernorm.weight")
    convolution = _Convolution(spec, drafter, normed, f"{prefix}.mlp_conv")
    mixed = drafter.mlp(convolution.prepare(normed), index)
    return convolution.finish(mixed, hidden)


class _Convolution:
    """A sublayer's convolutions: the coefficients of both sides come from the sublayer's normed input."""

    def __init__(self, spec: DFlash2Spec, drafter: BlockDrafter, normed: ir.Value, prefix: str) -> None:
        self._spec = spec
        self._op = drafter.op
        projection = drafter.weights.float32(f"{prefix}.kernel_projection.weight")
        self._coefficients = ops.linear(drafter.op, normed, projection)
        self._base = drafter.weights.float32(f"{prefix}.base_kernel")

    def prepare(self, normed: ir.Value) -> ir.Value:
        """Convolve the sublayer's input."""
        return self._convolve(normed, side=0, residual=None)

    def finish(self, mixed: ir.Value, residual: ir.Value) -> ir.Value:
        """Convolve the sublayer's output and add it to the residual."""
        return self._convolve(mixed, side=1, residual=residual)

    def _convolve(self, x: ir.Value, *, side: int, residual: ir.Value | None) -> ir.Value:
        taps, group_size = self._spec.conv_kernel_size, self._spec.conv_group_size
        return ops.grouped_convolution(
            self._op, x, self._coefficients, self._base, residual, side=side, taps=taps, group_size=group_size
        )


def _select(spec: DFlash2Spec, drafter: BlockDrafter, hidden: ir.Value, anchor: ir.Value, proposal: Proposal) -> None:
    """Walk the candidates of every slot (semantics B.4)."""
    op = drafter.op
    scores, candidates = drafter.top_candidates(hidden, proposal.walk_width(spec.selector_top_k))
    scores = scaled(op, scores, spec)
    selector = f"{spec.prefix}candidate_selector"
    predecessors, successors = (drafter.weights.stored(_codebook(spec, side)) for side in ("predecessor", "successor"))
    projected = ops.linear(op, hidden, drafter.weights.float32(f"{selector}.hidden_projection.weight"))
    top_k, max_slots = spec.selector_top_k, spec.block_size - 1
    proposal.walk(Walk(scores, candidates, projected, predecessors, successors, anchor, top_k, max_slots))


def _codebook(spec: DFlash2Spec, side: str) -> str:
    """Return the tensor's name: some exports add `.weight` to the bare one."""
    bare = f"{spec.prefix}candidate_selector.{side}_codebook"
    return bare if bare in spec.tensors else f"{bare}.weight"


def _candidates(spec: DFlash2Spec, target: TargetSpec) -> int:
    return spec.selector_top_k


LOADER = block_drafter_loader("dflash2", "DFlash2DraftModel", is_dflash2, load_dflash2, dflash2_stage, _candidates)
