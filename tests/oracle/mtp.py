"""The multi-token prediction head of a target checkpoint (``mtp.*``), greedy recursion of K drafts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.oracle.mixture import mixture
from tests.oracle.ops import attend, rms_norm, rotate_by, split_heads, swiglu
from tests.oracle.target import Target


@dataclass(frozen=True)
class MTPCache:
    """Per MTP layer: keys (after rope) and values [kv_heads, rows, head_dim]; row t has position t."""

    keys: list[Tensor]
    values: list[Tensor]

    def first(self, rows: int) -> MTPCache:
        """The cache as it was after ``rows`` rows."""
        return MTPCache([keys[:, :rows] for keys in self.keys], [values[:, :rows] for values in self.values])


@dataclass(frozen=True)
class MTPReplay:
    """Committed rows run with the target's hidden states: their cache, and ``hidden`` [rows, hidden] after mtp.norm."""

    cache: MTPCache
    hidden: Tensor


class MTP:
    """Drafts token t + 2 from the target's final (post-norm) hidden state at t and the embedding of token t + 1.

    Step k runs layer ``k mod layers``. With several layers every layer's cache holds every row: a row's stem output is
    the same whichever layer runs it, so each layer projects its own keys and values from it.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.layers = target.mtp_num_hidden_layers
        if self.layers < 1:
            raise ValueError("this target has no MTP head: config.json lacks mtp_num_hidden_layers >= 1")
        config = target.config
        self.heads, self.kv_heads, self.eps = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.rms_norm_eps,
        )
        rotary = target.model.model.rotary_emb
        self.frequencies, self.rotary_scale = rotary.inv_freq, float(rotary.attention_scaling)

    def weight(self, name: str) -> Tensor:
        return self.target.tensors[f"mtp.{name}.weight"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, 1.0 + self.weight(name), self.eps)

    @torch.no_grad()
    def replay(self, token_ids: list[int], target_hidden: Tensor) -> MTPReplay:
        """Rows 0..n-1 of n + 1 committed tokens; target_hidden [>= n, hidden] after the target's final norm."""
        rows = len(token_ids) - 1
        empty = [torch.zeros(self.kv_heads, 0, self.target.config.head_dim) for _ in range(self.layers)]
        cache, hidden = self._step(0, token_ids[1:], target_hidden[:rows], MTPCache(empty, empty))
        return MTPReplay(cache, hidden)

    @torch.no_grad()
    def propose(self, replay: MTPReplay, rows: int, drafts: int) -> list[int]:
        """``drafts`` greedy tokens after the anchor, which is the token row ``rows - 1`` of the replay has read."""
        cache, hidden = replay.cache.first(rows), replay.hidden[rows - 1 : rows]
        tokens = [self._argmax(hidden)]
        for step in range(1, drafts):
            cache, hidden = self._step(step % self.layers, tokens[-1:], hidden, cache)
            tokens.append(self._argmax(hidden))
        return tokens

    def _argmax(self, hidden: Tensor) -> int:
        return int((hidden[0] @ self.target.head[: self.target.candidate_vocab_size].T).argmax())

    def _step(self, layer: int, next_ids: list[int], hidden: Tensor, cache: MTPCache) -> tuple[MTPCache, Tensor]:
        """Appends rows to the cache and runs ``layer`` over them; returns the cache and mtp.norm's output."""
        embedded = self.norm("pre_fc_norm_embedding", self.target.embedding[torch.tensor(next_ids)])
        stem = torch.cat([embedded, self.norm("pre_fc_norm_hidden", hidden)], dim=-1) @ self.weight("fc").T
        start = cache.keys[0].shape[1]
        positions = torch.arange(start, start + stem.shape[0])
        cache = self._append(cache, stem, positions)
        name = f"layers.{layer}"
        normed = self.norm(f"{name}.input_layernorm", stem)
        stem = stem + self._attention(f"{name}.self_attn", normed, positions, cache.keys[layer], cache.values[layer])
        normed = self.norm(f"{name}.post_attention_layernorm", stem)
        return cache, self.norm("norm", stem + self._feed_forward(f"{name}.mlp", normed))

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        if self.target.experts_per_token:
            return mixture(self.target.tensors, f"mtp.{name}", x, self.target.experts_per_token)
        return swiglu(x, *(self.weight(f"{name}.{part}_proj") for part in ("gate", "up", "down")))

    def _append(self, cache: MTPCache, stem: Tensor, positions: Tensor) -> MTPCache:
        keys, values = [], []
        for layer in range(self.layers):
            normed = self.norm(f"layers.{layer}.input_layernorm", stem)
            name = f"layers.{layer}.self_attn"
            key = self.norm(f"{name}.k_norm", split_heads(normed @ self.weight(f"{name}.k_proj").T, self.kv_heads))
            value = split_heads(normed @ self.weight(f"{name}.v_proj").T, self.kv_heads)
            keys.append(
                torch.cat([cache.keys[layer], rotate_by(key, positions, self.frequencies, self.rotary_scale)], dim=1)
            )
            values.append(torch.cat([cache.values[layer], value], dim=1))
        return MTPCache(keys, values)

    def _attention(self, name: str, x: Tensor, positions: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        projected = split_heads(x @ self.weight(f"{name}.q_proj").T, self.heads)
        queries, gates = projected.chunk(2, dim=-1)
        queries = rotate_by(self.norm(f"{name}.q_norm", queries), positions, self.frequencies, self.rotary_scale)
        visible = torch.arange(keys.shape[1])[None] <= positions[:, None]
        mixed = attend(queries, keys, values, visible)
        return (mixed * gates.transpose(0, 1).flatten(1).sigmoid()) @ self.weight(f"{name}.o_proj").T
