"""`dfc::candidate_selector` in PyTorch: the walk as written in semantics B.4, one slot after the other."""

from __future__ import annotations

import torch


@torch.library.custom_op("dfc::candidate_selector", mutates_args=())
def candidate_selector(
    candidate_ids: torch.Tensor,
    candidate_logits: torch.Tensor,
    projected: torch.Tensor,
    predecessor_codebook: torch.Tensor,
    successor_codebook: torch.Tensor,
    anchor: torch.Tensor,
    temperature: torch.Tensor,
    uniforms: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose one candidate per slot, each given the one before it.

    candidate_ids [N, S, K] int64, candidate_logits [N, S, K], projected [N, S, R], codebooks [V, R], anchor [N] int64,
    temperature [N] (0: greedy), uniforms [N, S]. Returns tokens [N, S] int64 and q [N, S, K], one-hot for greedy rows.
    Scores and q are float32 (float64 for float64 logits), whatever is stored.
    """
    batch, slots, count = candidate_ids.shape
    precision = torch.promote_types(candidate_logits.dtype, torch.float32)
    tokens = torch.empty(batch, slots, dtype=torch.int64, device=candidate_ids.device)
    q = torch.empty(batch, slots, count, dtype=precision, device=candidate_ids.device)
    before = anchor
    rows = torch.arange(batch, device=candidate_ids.device)
    greedy = temperature <= 0
    for slot in range(slots):
        weighted = predecessor_codebook[before].to(precision) * projected[:, slot].to(precision)
        successors = successor_codebook[candidate_ids[:, slot]].to(precision)
        scores = candidate_logits[:, slot].to(precision) + torch.einsum("nr,nkr->nk", weighted, successors)
        best = scores.argmax(-1)
        softmax = (scores / torch.where(greedy, 1.0, temperature)[:, None]).softmax(-1)
        drawn = (uniforms[:, slot, None] >= softmax.cumsum(-1)).sum(-1).clamp(max=count - 1)
        one_hot = torch.nn.functional.one_hot(best, count).to(softmax.dtype)
        q[:, slot] = torch.where(greedy[:, None], one_hot, softmax)
        before = candidate_ids[rows, slot, torch.where(greedy, best, drawn)]
        tokens[:, slot] = before
    return tokens, q


@candidate_selector.register_fake
def _(
    candidate_ids: torch.Tensor,
    candidate_logits: torch.Tensor,
    projected: torch.Tensor,
    predecessor_codebook: torch.Tensor,
    successor_codebook: torch.Tensor,
    anchor: torch.Tensor,
    temperature: torch.Tensor,
    uniforms: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    precision = torch.promote_types(candidate_logits.dtype, torch.float32)
    return torch.empty_like(candidate_ids[..., 0]), torch.empty_like(candidate_logits, dtype=precision)
