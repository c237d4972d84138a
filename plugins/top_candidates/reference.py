"""`dfc::top_candidates` in PyTorch: a stable sort."""

from __future__ import annotations

import torch


@torch.library.custom_op("dfc::top_candidates", mutates_args=())
def top_candidates(logits: torch.Tensor, k: int, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the `k` largest of the first `vocab_size` logits [N, S, V] of each row, and their ids int64, both
    [N, S, k].

    The largest comes first; of equal ones the lowest id does.
    """
    values, ids = logits[..., :vocab_size].sort(dim=-1, descending=True, stable=True)
    return values[..., :k].contiguous(), ids[..., :k].contiguous()


@top_candidates.register_fake
def _(logits: torch.Tensor, k: int, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = logits.new_empty((*logits.shape[:-1], k))
    return values, torch.empty_like(values, dtype=torch.int64)
