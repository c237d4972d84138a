"""The first DFlash drafter, greedy, from its formulas (semantics A): no cache, every block computed from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.oracle.checkpoint import read_config, read_tensors
from tests.oracle.ops import attend, rms_norm, rotate, split_heads, swiglu
from tests.oracle.target import Target


class DFlash:
    """Drafts from a target's tapped features; the target lends embedding and head."""

    def __init__(self, directory: Path, target: Target) -> None:
        raw = read_config(directory)
        # nested settings win over those at top level
        self.settings: dict[str, Any] = raw | raw.get("dflash_config", {})
        self.target = target
        self.weights = {name.removeprefix("model."): tensor for name, tensor in read_tensors(directory).items()}
        self.block_size = int(self.settings["block_size"])
        self.target_layer_ids = tuple(self.settings["target_layer_ids"])
        self.theta = float(raw.get("rope_parameters", raw)["rope_theta"])

    @torch.no_grad()
    def propose(self, features: Tensor, anchor: int, block_size: int | None = None) -> list[int]:
        """The block_size - 1 tokens after ``anchor``; features [s, taps * hidden] of all s rows before it."""
        tokens: list[int] = self.logits(features, anchor, block_size).argmax(dim=-1).tolist()
        return tokens

    def logits(self, features: Tensor, anchor: int, block_size: int | None = None) -> Tensor:
        """The logits [block_size - 1, vocabulary] of those tokens."""
        settings = self.settings
        size = block_size or self.block_size
        context = self._norm("hidden_norm", features @ self.weights["fc.weight"].T)
        ids = torch.tensor([anchor] + [settings["mask_token_id"]] * (size - 1))
        x = self.target.embedding[ids] * settings.get("input_embedding_scale", 1.0)
        for layer in range(settings["num_hidden_layers"]):
            name = f"layers.{layer}"
            x = x + self._attention(layer, self._norm(f"{name}.input_layernorm", x), context)
            gate, up, down = (self.weights[f"{name}.mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
            x = x + swiglu(self._norm(f"{name}.post_attention_layernorm", x), gate, up, down)
        logits = self._norm("norm", x)[1:] @ self.target.head[: self.target.candidate_vocab_size].T
        logits = logits * settings.get("output_multiplier", 1.0)
        cap = settings.get("final_logit_softcapping")
        if cap:
            logits = cap * torch.tanh(logits / cap)
        return logits

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.weights[f"{name}.weight"], self.settings["rms_norm_eps"])

    def _heads(self, layer: int, kind: str, x: Tensor) -> Tensor:
        """One projection of a layer, by head: [heads, rows, head_dim]."""
        name = f"layers.{layer}.self_attn.{kind}_proj"
        projected = x @ self.weights[f"{name}.weight"].T
        if self.settings["attention_bias"]:
            projected = projected + self.weights[f"{name}.bias"]
        return split_heads(projected, projected.shape[-1] // self.settings["head_dim"])

    def _attention(self, layer: int, x: Tensor, context: Tensor) -> Tensor:
        """Context rows give keys and values only, and straight from ``context``; they stand before the block's."""
        name = f"layers.{layer}.self_attn"
        positions = torch.arange(context.shape[0] + x.shape[0])
        rows = positions[context.shape[0] :]
        both = torch.cat([context, x])
        queries = self._norm(f"{name}.q_norm", self._heads(layer, "q", x))
        keys = self._norm(f"{name}.k_norm", self._heads(layer, "k", both))
        size = self.settings["head_dim"]
        mixed = attend(
            rotate(queries, rows, self.theta, size),
            rotate(keys, positions, self.theta, size),
            self._heads(layer, "v", both),
            self._visible(layer, rows, positions),
        )
        output = mixed @ self.weights[f"{name}.o_proj.weight"].T
        return output + self.weights[f"{name}.o_proj.bias"] if self.settings["attention_bias"] else output

    def _visible(self, layer: int, rows: Tensor, positions: Tensor) -> Tensor:
        """[rows, keys]: a window of W is the row itself and the W - 1 before it (and after it, where not causal)."""
        settings = self.settings
        slides = settings["layer_types"][layer] == "sliding_attention"
        # a causality that nobody sets: sliding layers are causal, full ones are not
        causal = settings.get("is_causal", settings.get("causal", slides))
        window = settings["sliding_window"] if slides else positions.shape[0]
        before = rows[:, None] - positions[None]
        return (before < window) & (before >= 0 if causal else before > -window)
