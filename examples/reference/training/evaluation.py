"""Tokens a round on the target's own greedy text, simulated over every position of held-out prompts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.dflash2 import DFlash2
from training.frozen_target import FrozenTarget, Taught
from training.mtp import MTP
from training.scale import Scale


@dataclass(frozen=True)
class TokensPerRound:
    """Mean accepted drafts plus the bonus token."""

    dflash2: float
    without_selector: float
    mtp: float


@torch.no_grad()
def evaluate(
    drafter: DFlash2, mtp: MTP, target: FrozenTarget, token_ids: Tensor, scale: Scale, device: str
) -> TokensPerRound:
    """Greedy acceptance behind ``scale.eval_anchors`` positions of each of ``scale.eval_rows`` held-out prompts."""
    prompts = token_ids[: scale.context * scale.eval_rows].view(scale.eval_rows, scale.context)
    prompts = prompts[:, : scale.eval_prompt].long().to(device)
    text = target.greedy(prompts, scale.eval_tokens)
    taught = target.teach(text)
    anchors = torch.arange(scale.eval_prompt, scale.eval_prompt + scale.eval_anchors, device=device)
    anchors = anchors[None].expand(scale.eval_rows, -1)
    selected, unary = dflash2_accepted(drafter, target, text, taught, anchors)
    mtp_counts = mtp_accepted(mtp, target, text, taught, scale)
    return TokensPerRound(*(mean_round(counts) for counts in (selected, unary, mtp_counts)))


def dflash2_accepted(
    drafter: DFlash2, target: FrozenTarget, text: Tensor, taught: Taught, anchors: Tensor
) -> tuple[Tensor, Tensor]:
    """Accepted drafts behind every anchor, [rows, anchors]: with the selector's walk, and with plain argmax."""
    hidden = drafter.propose(target.embedding, text, taught.features, anchors)
    logits = target.head(hidden).float()
    unary, candidates = logits.topk(drafter.shape.selector_top_k, -1)
    previous = text.gather(1, anchors)
    alive = [torch.ones_like(previous, dtype=torch.bool) for _ in range(2)]
    counts = [torch.zeros_like(previous) for _ in range(2)]
    for slot in range(hidden.shape[2]):
        true = text.gather(1, anchors + 1 + slot)
        scores = drafter.candidate_selector.scores(
            unary[:, :, slot].to(hidden.dtype), candidates[:, :, slot], previous, hidden[:, :, slot]
        )
        previous = candidates[:, :, slot].gather(-1, scores.argmax(-1, keepdim=True))[..., 0]
        for index, token in enumerate((previous, logits[:, :, slot].argmax(-1))):
            alive[index] &= token == true
            counts[index] += alive[index]
    return counts[0], counts[1]


def mtp_accepted(mtp: MTP, target: FrozenTarget, text: Tensor, taught: Taught, scale: Scale) -> Tensor:
    """Accepted drafts of the recursion behind every anchor, [rows, anchors].

    An anchor at s is read by row s - 1. Later steps see the true tokens, which an accepted prefix equals.
    """
    rope, hidden = target.rope(taught.hidden), taught.hidden
    first = scale.eval_prompt - 1
    alive = torch.ones(scale.eval_rows, scale.eval_anchors, dtype=torch.bool, device=text.device)
    counts = torch.zeros_like(alive, dtype=torch.long)
    for step in range(scale.mtp_steps):
        rows = text.shape[1] - 2 - step
        embedded = target.embedding(text[:, 1 + step : 1 + step + rows])
        hidden = mtp(embedded, hidden[:, :rows], (rope[0][:, :rows], rope[1][:, :rows]))
        drafts = target.head(hidden).argmax(-1)[:, first : first + scale.eval_anchors]
        alive &= drafts == text[:, first + 2 + step : first + 2 + step + scale.eval_anchors]
        counts += alive
    return counts


def mean_round(accepted: Tensor) -> float:
    """Walks each row round by round: behind an anchor with A accepted the next anchor is A + 1 further."""
    rounds: list[int] = []
    for row in accepted.tolist():
        position = 0
        while position < len(row):
            rounds.append(row[position] + 1)
            position += rounds[-1]
    return sum(rounds) / len(rounds)
