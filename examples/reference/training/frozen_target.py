"""What the drafters learn from: the trained target's features, final hidden states and logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM


@dataclass(frozen=True)
class Taught:
    """features [rows, T, taps * hidden], hidden [rows, T, hidden] after the final norm, logits [rows, T,
    vocabulary]."""

    features: Tensor
    hidden: Tensor
    logits: Tensor


class FrozenTarget:
    """A target that is not trained any more; bfloat16 on a GPU, float32 on a CPU."""

    def __init__(self, directory: Path, target_layer_ids: tuple[int, ...], device: str) -> None:
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        model = Qwen3_5ForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa")
        self.model = model.to(device).eval().requires_grad_(False)
        self.target_layer_ids = target_layer_ids
        self.dtype = dtype

    @property
    def embedding(self) -> nn.Embedding:
        return self.model.model.embed_tokens

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden rows that went through a final norm."""
        return hidden @ self.model.lm_head.weight.T.to(hidden.dtype)

    @torch.no_grad()
    def teach(self, token_ids: Tensor) -> Taught:
        """One pass over token_ids [rows, T]."""
        output = self.model.model(input_ids=token_ids, output_hidden_states=True)
        features = torch.cat([output.hidden_states[layer + 1] for layer in self.target_layer_ids], -1)
        return Taught(features, output.last_hidden_state, self.head(output.last_hidden_state))

    def rope(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin for the positions 0..T-1 of hidden [rows, T, hidden]."""
        positions = torch.arange(hidden.shape[1], device=hidden.device).view(1, 1, -1).expand(3, hidden.shape[0], -1)
        return self.model.model.rotary_emb(hidden, positions)

    @torch.no_grad()
    def greedy(self, token_ids: Tensor, count: int) -> Tensor:
        """token_ids [rows, T] continued by ``count`` greedy tokens."""
        for _ in range(count):
            hidden = self.model.model(input_ids=token_ids).last_hidden_state[:, -1]
            token_ids = torch.cat([token_ids, self.head(hidden).argmax(-1, keepdim=True)], 1)
        return token_ids
