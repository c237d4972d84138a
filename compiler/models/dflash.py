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
    StageSizes,
    block_drafter_loader,
    block_drafter_stage,
)


def dflash_stage(spec: DFlashSpec, target: TargetSpec, sizes: StageSizes) -> StageGraph:
    """Build `draft_dflash`, as `block_drafter_stage` says."""
    return block_drafter_stage("dflash", spec, target, sizes, partial(_layer, spec), _choose)


def _layer(
    spec: DFlashSpec, drafter: BlockDrafter, hidden: ir.Value, index: int, context: Context, block: Block
) -> ir.Value:
    """Run one layer over the block (semantics A.4)."""
    prefix = f"{spec.prefix}layers.{index}"
    normed = drafter.norm(hidden, f"{prefix}.input_layernorm.weight")
    hidden = drafter.op.Add(hidden, drafter.attention(normed, index, context, block))
    normed = drafter.norm(hidden, f"{prefix}.post_attention_layernorm.weight")
    return drafter.op.Add(hidden, drafter.mlp(normed, index))


def _choose(drafter: BlockDrafter, hidden: ir.Value, anchor: ir.Value) -> ir.Value:
    """Take the most likely token of every slot: the multiplier and the soft cap leave it the same, they only grow."""
    return drafter.op.ArgMax(drafter.logits(hidden), axis=-1, keepdims=0)


LOADER = block_drafter_loader("dflash", "DFlashDraftModel", is_dflash, load_dflash, dflash_stage)
