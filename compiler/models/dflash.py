"""DFlash drafters, the first generation (semantics A): stage `draft_dflash`."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from dfc.compiler.checkpoint import DFlashSpec, TargetSpec, is_dflash, load_dflash
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.models.block_drafter import (
    Block,
    BlockDrafter,
    Context,
    Drafting,
    block_drafter_loader,
    block_drafter_stage,
    likeliest_candidates,
    scaled,
)
from dfc.compiler.models.proposals import LikeliestProposal, Proposal


def dflash_stage(spec: DFlashSpec, target: TargetSpec, drafting: Drafting) -> StageGraph:
    """Build `draft_dflash`, as `block_drafter_stage` says."""
    return block_drafter_stage("dflash", spec, target, drafting, partial(_layer, spec), partial(_choose, spec, target))


def _layer(
    spec: DFlashSpec, drafter: BlockDrafter, hidden: ir.Value, index: int, context: Context, block: Block
) -> ir.Value:
    """Run one layer over the block (semantics A.4)."""
    prefix = f"{spec.prefix}layers.{index}"
    normed = drafter.norm(hidden, f"{prefix}.input_layernorm.weight")
    hidden = drafter.op.Add(hidden, drafter.attention(normed, index, context, block))
    normed = drafter.norm(hidden, f"{prefix}.post_attention_layernorm.weight")
    return drafter.op.Add(hidden, drafter.mlp(normed, index))


def _choose(
    spec: DFlashSpec, target: TargetSpec, drafter: BlockDrafter, hidden: ir.Value, anchor: ir.Value, proposal: Proposal
) -> None:
    """Propose for every slot by itself; where only the likeliest counts, multiplier and soft cap change nothing."""
    logits = drafter.logits(hidden)
    proposal.choose(logits if isinstance(proposal, LikeliestProposal) else scaled(drafter.op, logits, spec), target)


LOADER = block_drafter_loader("dflash", "DFlashDraftModel", is_dflash, load_dflash, dflash_stage, likeliest_candidates)
