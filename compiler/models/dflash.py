"""DFlash drafters, the first generation (semantics A): stage `draft_dflash`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import onnx_ir as ir

from dfc.compiler.checkpoint import DFlashSpec, TargetSpec, check_fits, is_dflash, load_dflash
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.models.block_drafter import (
    Block,
    BlockDrafter,
    Context,
    StageSizes,
    block_drafter_build,
    block_drafter_stage,
)
from dfc.compiler.models.drafter import DrafterBuild, DrafterLoader


def load_drafter(directory: Path, target: TargetSpec, draft_tokens: int | None) -> DrafterBuild:
    """Read a drafter's checkpoint and check that it goes with the target.

    Raises:
        CheckpointError: it does not.
    """
    spec = load_dflash(directory)
    check_fits(spec, target)
    return block_drafter_build("dflash", spec, draft_tokens, partial(dflash_stage, spec, target))


LOADER = DrafterLoader("DFlashDraftModel", is_dflash, load_drafter)


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
