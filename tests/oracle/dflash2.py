"""The DFlash2 drafter, greedy: context features, one block forward, candidate selector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.oracle.checkpoint import read_config, read_tensors
from tests.oracle.ops import attend, rms_norm, rotate, split_heads, swiglu
from tests.oracle.target import Target


@dataclass(frozen=True)
class DFlash2Config:
    """What the forward needs from ``config.json``; every setting is read nested first, then top level."""

    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    rms_norm_eps: float
    rope_theta: float
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    sliding_windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    conv_kernel_size: int
    conv_group_size: int
    selector_top_k: int
    input_embedding_scale: float
    output_multiplier: float
    final_logit_softcapping: float | None

    @classmethod
    def read(cls, directory: Path) -> DFlash2Config:
        raw = read_config(directory)
        nested: dict[str, Any] = raw.get("dflash_config", {})

        def setting(name: str, default: Any = None) -> Any:
            return nested.get(name, raw.get(name, default))

        windows = _sliding_windows(raw, nested)
        explicit = raw.get("is_causal", nested.get("causal"))
        # without an explicit flag, sliding layers are causal and full ones are not
        causal = tuple(window is not None if explicit is None else bool(explicit) for window in windows)
        return cls(
            heads=raw["num_attention_heads"],
            kv_heads=raw["num_key_value_heads"],
            head_dim=raw["head_dim"],
            layers=raw["num_hidden_layers"],
            rms_norm_eps=raw["rms_norm_eps"],
            rope_theta=float((raw.get("rope_parameters") or raw)["rope_theta"]),
            block_size=setting("block_size", 16),
            mask_token_id=setting("mask_token_id"),
            target_layer_ids=tuple(setting("target_layer_ids")),
            sliding_windows=windows,
            causal=causal,
            conv_kernel_size=setting("conv_kernel_size"),
            conv_group_size=setting("conv_group_size"),
            selector_top_k=setting("selector_top_k"),
            input_embedding_scale=setting("input_embedding_scale", 1.0),
            output_multiplier=setting("output_multiplier", 1.0),
            final_logit_softcapping=setting("final_logit_softcapping"),
        )


def _sliding_windows(raw: dict[str, Any], nested: dict[str, Any]) -> tuple[int | None, ...]:
    layers: int = raw["num_hidden_layers"]
    if nested.get("use_swa"):
        return (nested["swa_window_size"],) * layers
    window = raw.get("sliding_window")
    layer_types = raw.get("layer_types")
    if layer_types is None:
        first = raw.get("max_window_layers", 0) if raw.get("use_sliding_window") else layers
        layer_types = ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]
    return tuple(window if layer_type == "sliding_attention" else None for layer_type in layer_types)


@dataclass(frozen=True)
class LayerContext:
    """One draft layer's context cache: keys (after rope) and values, [kv_heads, T, head_dim]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Proposal:
    """One drafted block: gamma = block_size - 1 slots, K candidates each, sorted by falling unary score.

    ``hidden`` [gamma, hidden] is after the final norm; ``candidates`` [gamma, K] token ids; ``scores`` [gamma, K] are
    unary plus pair scores on the realised predecessor.
    """

    tokens: list[int]
    hidden: Tensor
    candidates: Tensor
    scores: Tensor


class DFlash2:
    """Drafts from a target's tapped features; the target lends embedding and head."""

    def __init__(self, directory: Path, target: Target) -> None:
        self.config = DFlash2Config.read(directory)
        self.target = target
        self.weights = {name.removeprefix("model."): tensor for name, tensor in read_tensors(directory).items()}

    def weight(self, name: str) -> Tensor:
        """The tensor ``name`` or, as some exports write linear weights and codebooks, ``name.weight``."""
        return self.weights[name] if name in self.weights else self.weights[f"{name}.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        product = x @ self.weight(name).T
        return product if bias is None else product + bias

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight(name), self.config.rms_norm_eps)

    @torch.no_grad()
    def context(self, features: Tensor, first_position: int = 0) -> list[LayerContext]:
        """Context caches of T committed rows; features [T, taps * hidden]. Row t depends on features[t] only."""
        shared = self.norm("hidden_norm", self.linear("fc", features))
        positions = torch.arange(first_position, first_position + features.shape[0])
        return [
            LayerContext(*self._keys_values(f"layers.{layer}.self_attn", shared, positions))
            for layer in range(self.config.layers)
        ]

    @torch.no_grad()
    def propose(self, context: list[LayerContext], anchor: int, block_size: int | None = None) -> Proposal:
        """Greedy drafts after ``anchor``, which stands right behind the context's last row."""
        block_size = block_size or self.config.block_size
        hidden = self._block(context, anchor, block_size)[1:]
        return self._select(hidden, anchor)

    def _block(self, context: list[LayerContext], anchor: int, block_size: int) -> Tensor:
        ids = torch.tensor([anchor] + [self.config.mask_token_id] * (block_size - 1))
        x = self.target.embedding[ids] * self.config.input_embedding_scale
        for layer, layer_context in enumerate(context):
            name = f"layers.{layer}"
            normed = self.norm(f"{name}.input_layernorm", x)
            convolved, finish = self._convolve(f"{name}.attention_conv", normed)
            x = x + finish(self._attention(layer, convolved, layer_context))
            normed = self.norm(f"{name}.post_attention_layernorm", x)
            convolved, finish = self._convolve(f"{name}.mlp_conv", normed)
            gate, up, down = (self.weight(f"{name}.mlp.{part}_proj") for part in ("gate", "up", "down"))
            x = x + finish(swiglu(convolved, gate, up, down))
        return self.norm("norm", x)

    def _convolve(self, name: str, normed: Tensor) -> tuple[Tensor, Any]:
        """The convolved input of a sublayer, and the function that convolves the sublayer's output."""
        config = self.config
        groups = normed.shape[-1] // config.conv_group_size
        dynamic = self.linear(f"{name}.kernel_projection", normed).reshape(-1, 2, config.conv_kernel_size, groups)
        base = self.weight(f"{name}.base_kernel")

        def apply(x: Tensor, side: int) -> Tensor:
            total = torch.zeros_like(x)
            for tap in range(config.conv_kernel_size):
                kernel = base[side, tap] + dynamic[:, side, tap].repeat_interleave(config.conv_group_size, dim=-1)
                shifted = torch.zeros_like(x)
                shifted[tap:] = x[: x.shape[0] - tap]
                total = total + kernel * shifted
            return total

        return apply(normed, 0), lambda output: apply(output, 1)

    def _keys_values(self, name: str, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        keys = self.norm(f"{name}.k_norm", split_heads(self.linear(f"{name}.k_proj", x), config.kv_heads))
        values = split_heads(self.linear(f"{name}.v_proj", x), config.kv_heads)
        return rotate(keys, positions, config.rope_theta, config.head_dim), values

    def _attention(self, layer: int, x: Tensor, context: LayerContext) -> Tensor:
        config, name = self.config, f"layers.{layer}.self_attn"
        start = context.keys.shape[1]
        positions = torch.arange(start, start + x.shape[0])
        queries = self.norm(f"{name}.q_norm", split_heads(self.linear(f"{name}.q_proj", x), config.heads))
        queries = rotate(queries, positions, config.rope_theta, config.head_dim)
        keys, values = self._keys_values(name, x, positions)
        mixed = attend(
            queries,
            torch.cat([context.keys, keys], dim=1),
            torch.cat([context.values, values], dim=1),
            self._visible(layer, positions, start + x.shape[0]),
        )
        return self.linear(f"{name}.o_proj", mixed)

    def _visible(self, layer: int, positions: Tensor, length: int) -> Tensor:
        """Which of the ``length`` keys each row sees: a window of W counts the row itself."""
        distance = positions[:, None] - torch.arange(length)[None]
        visible = torch.ones_like(distance, dtype=torch.bool)
        if self.config.causal[layer]:
            visible &= distance >= 0
        window = self.config.sliding_windows[layer]
        if window is not None:
            visible &= distance.abs() < window
        return visible

    def _select(self, hidden: Tensor, anchor: int) -> Proposal:
        config = self.config
        logits = hidden @ self.target.head[: self.target.candidate_vocab_size].T * config.output_multiplier
        if config.final_logit_softcapping:
            logits = config.final_logit_softcapping * torch.tanh(logits / config.final_logit_softcapping)
        unary, candidates = logits.topk(config.selector_top_k, dim=-1, sorted=True)
        gates = self.linear("candidate_selector.hidden_projection", hidden)
        predecessors = self.weight("candidate_selector.predecessor_codebook")
        successors = self.weight("candidate_selector.successor_codebook")
        tokens: list[int] = []
        scores: list[Tensor] = []
        previous = anchor
        for slot in range(hidden.shape[0]):
            pair = successors[candidates[slot]] @ (predecessors[previous] * gates[slot])
            scores.append(unary[slot] + pair)
            previous = int(candidates[slot, scores[-1].argmax()])
            tokens.append(previous)
        return Proposal(tokens, hidden, candidates, torch.stack(scores))
