"""Trains both drafters together on the frozen target."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from training.corpus import batches, load_tokens
from training.dflash2 import DFlash2, save_dflash2
from training.evaluation import evaluate
from training.frozen_target import FrozenTarget
from training.losses import dflash2_losses, mtp_loss, random_anchors
from training.mtp import MTP, add_to_target
from training.scale import Scale
from training.schedule import Budget, steps

PEAK_LEARNING_RATE = 1.5e-3
REPORT_EVERY = 200


def train_drafters(
    output: Path, target_directory: Path, corpus: Path, scale: Scale, budget: Budget, device: str
) -> None:
    """Writes the DFlash2 checkpoint to ``output`` and the MTP head into the target's checkpoint, both bfloat16."""
    token_ids = load_tokens(corpus)
    target = FrozenTarget(target_directory, scale.dflash2.target_layer_ids, device)
    torch.manual_seed(1)
    drafter, mtp = DFlash2(scale).to(device), MTP(target.model.config).to(device)
    parameters = [*drafter.parameters(), *mtp.parameters()]
    print(f"{sum(parameter.numel() for parameter in parameters)} parameters in both drafters", flush=True)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=device == "cuda")
    windows = batches(token_ids[scale.held_out_tokens :], scale.drafter_batch, scale.context, seed=2, device=device)
    for step in steps(budget, optimizer, PEAK_LEARNING_RATE):
        window = next(windows)
        taught = target.teach(window)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            block_size = scale.dflash2.block_size
            anchors = random_anchors(scale.drafter_batch, scale.context, block_size, scale.anchors, device)
            block_loss, selector_loss = dflash2_losses(drafter, target, window, taught, anchors)
            recursion_loss = mtp_loss(mtp, target, window, taught, scale.mtp_steps)
        (block_loss + selector_loss + recursion_loss).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % REPORT_EVERY == 0:
            losses = [round(loss.item(), 3) for loss in (block_loss, selector_loss, recursion_loss)]
            print(f"step {step}: block, selector and MTP loss {losses}", flush=True)
    result = evaluate(drafter.to(target.dtype), mtp.to(target.dtype), target, token_ids, scale, device)
    print(f"mean tokens per round: {result}", flush=True)
    add_to_target(target_directory, mtp.to(torch.bfloat16))
    # last: its presence marks the stage as done
    save_dflash2(output, drafter.to(torch.bfloat16), scale)
