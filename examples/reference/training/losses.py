"""What each drafter is trained towards: the target's own distribution, never the corpus token."""

from __future__ import annotations

import torch
from torch import Tensor

from training.dflash2 import DFlash2
from training.frozen_target import FrozenTarget, Taught
from training.mtp import MTP

SLOT_DECAY = 7.0
"""Slots count less the further they stand from the anchor: weight exp(-slot / 7)."""

MTP_STEP_WEIGHTS = (1.0, 0.6, 0.4)


def soft_cross_entropy(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy in nats of logits [..., n] against probabilities [..., n]."""
    return -(wanted * logits.float().log_softmax(-1)).sum(-1)


def random_anchors(rows: int, length: int, block_size: int, count: int, device: str) -> Tensor:
    """Distinct anchor positions [rows, count] with a whole block behind each."""
    return torch.stack([torch.randperm(length - block_size - 2, device=device)[:count] + 1 for _ in range(rows)])


def dflash2_losses(
    drafter: DFlash2, target: FrozenTarget, token_ids: Tensor, taught: Taught, anchors: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss of the block's logits, and of the selector on the block's own candidates with true predecessors."""
    slots = drafter.shape.block_size - 1
    hidden = drafter.propose(target.embedding, token_ids, taught.features, anchors)
    # the target's logits at a position predict the token after it: slot j is judged at anchor + j - 1
    judged = (anchors[..., None] + torch.arange(slots, device=anchors.device)).flatten(1)
    vocabulary = taught.logits.shape[-1]
    wanted = taught.logits.gather(1, judged[..., None].expand(-1, -1, vocabulary)).unflatten(1, (-1, slots))
    wanted = wanted.float().softmax(-1)
    weights = torch.exp(-torch.arange(slots, device=anchors.device) / SLOT_DECAY)
    logits = target.head(hidden).float()
    block_loss = (soft_cross_entropy(logits, wanted) * weights).mean()

    unary, candidates = logits.topk(drafter.shape.selector_top_k, -1)
    predecessors = token_ids.gather(1, judged).unflatten(1, (-1, slots))
    scores = drafter.candidate_selector.scores(unary.detach(), candidates, predecessors, hidden.detach())
    restricted = wanted.gather(-1, candidates)
    restricted = restricted / restricted.sum(-1, keepdim=True).clamp_min(1e-6)
    return block_loss, (soft_cross_entropy(scores, restricted) * weights).mean()


def mtp_loss(mtp: MTP, target: FrozenTarget, token_ids: Tensor, taught: Taught, steps: int) -> Tensor:
    """Recursion with true tokens: step j reads token t + 1 + j and the step before's output."""
    rope = target.rope(taught.hidden)
    hidden = taught.hidden
    loss = torch.zeros((), device=token_ids.device)
    for step in range(steps):
        rows = token_ids.shape[1] - 2 - step
        embedded = target.embedding(token_ids[:, 1 + step : 1 + step + rows])
        hidden = mtp(embedded, hidden[:, :rows], (rope[0][:, :rows], rope[1][:, :rows]))
        wanted = taught.logits[:, 1 + step : 1 + step + rows].float().softmax(-1)
        loss = loss + MTP_STEP_WEIGHTS[step] * soft_cross_entropy(target.head(hidden), wanted).mean()
    return loss
