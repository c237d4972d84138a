"""The target through transformers' own Qwen3.5 model, in float32 on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
)

from tests.oracle.checkpoint import read_config, read_tensors, tokenizer_size
from tests.oracle.mixture import fused


@dataclass(frozen=True)
class TargetForward:
    """Everything one pass over T tokens computes, float32.

    ``layer_outputs`` is [layers, T, hidden]: each decoder layer's output after its MLP residual, so the last one
    is what the final norm reads. ``final_hidden`` [T, hidden] is after the final norm; ``logits`` is [T, vocabulary].
    """

    layer_outputs: Tensor
    final_hidden: Tensor
    logits: Tensor

    def features(self, target_layer_ids: tuple[int, ...]) -> Tensor:
        """The tapped layers' outputs side by side, in the order given: [T, len(target_layer_ids) * hidden]."""
        return torch.cat([self.layer_outputs[layer] for layer in target_layer_ids], dim=-1)


@dataclass(frozen=True)
class Greedy:
    """Greedy continuation of a prompt; ``margins[i]`` is the logit gap between token i and the runner-up."""

    tokens: list[int]
    margins: list[float]


class Target:
    """A Qwen3.5 text target; ``tensors`` also holds the checkpoint's ``mtp.*`` tensors for the MTP oracle."""

    def __init__(self, directory: Path) -> None:
        config = read_config(directory)
        text_config: dict[str, Any] = dict(config.get("text_config", config))
        self.mtp_num_hidden_layers = int(text_config.get("mtp_num_hidden_layers", 0))
        self.experts_per_token = int(text_config.get("num_experts_per_tok", 0))
        kind = Qwen3_5MoeTextConfig if self.experts_per_token else Qwen3_5TextConfig
        self.config = kind(**{key: value for key, value in text_config.items() if key != "model_type"})
        self.config.tie_word_embeddings = bool(
            config.get("tie_word_embeddings", text_config.get("tie_word_embeddings", False))
        )
        # the eager implementation is the written-out softmax: the least clever of the choices
        self.config._attn_implementation = "eager"
        self.tensors = fused(read_tensors(directory))
        self.model = _load_model(self.config, self.tensors)
        self.candidate_vocab_size = min(tokenizer_size(directory) or self.config.vocab_size, self.config.vocab_size)

    @property
    def embedding(self) -> Tensor:
        """[vocabulary, hidden]"""
        weight: Tensor = self.model.model.embed_tokens.weight
        return weight

    @property
    def head(self) -> Tensor:
        """[vocabulary, hidden]"""
        weight: Tensor = self.model.lm_head.weight
        return weight

    @torch.no_grad()
    def forward(self, token_ids: list[int]) -> TargetForward:
        """One pass over the whole sequence, no cache."""
        outputs: list[Tensor] = []
        hooks = [
            layer.register_forward_hook(lambda _module, _args, output: outputs.append(output[0]))
            for layer in self.model.model.layers
        ]
        try:
            hidden = self.model.model(input_ids=torch.tensor([token_ids]), use_cache=False).last_hidden_state[0]
        finally:
            for hook in hooks:
                hook.remove()
        return TargetForward(torch.stack(outputs), hidden, self.model.lm_head(hidden))

    @torch.no_grad()
    def new_cache(self, token_ids: list[int]) -> DynamicCache:
        """transformers' cache after feeding ``token_ids`` in one pass."""
        cache = DynamicCache(config=self.config)
        if token_ids:
            self.model.model(input_ids=torch.tensor([token_ids]), cache=cache, use_cache=True)
        return cache

    @torch.no_grad()
    def greedy(self, prompt_ids: list[int], count: int) -> Greedy:
        """``count`` greedy tokens after the prompt, one cached step a token; stop tokens do not stop it."""
        cache = self.new_cache(prompt_ids[:-1])
        tokens: list[int] = []
        margins: list[float] = []
        current = prompt_ids[-1]
        for _ in range(count):
            output = self.model.model(input_ids=torch.tensor([[current]]), cache=cache, use_cache=True)
            best = self.model.lm_head(output.last_hidden_state[0, -1]).topk(2)
            current = int(best.indices[0])
            tokens.append(current)
            margins.append(float(best.values[0] - best.values[1]))
        return Greedy(tokens, margins)


def _load_model(config: Any, tensors: dict[str, Tensor]) -> Any:
    """Fills transformers' model; vision and MTP tensors are left out, any other mismatch is an error."""
    skipped = ("mtp.", "model.visual.")
    weights = {
        name.replace("model.language_model.", "model."): tensor
        for name, tensor in tensors.items()
        if not name.startswith(skipped)
    }
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    kind = Qwen3_5MoeForCausalLM if isinstance(config, Qwen3_5MoeTextConfig) else Qwen3_5ForCausalLM
    model = kind(config).float()
    model.load_state_dict(weights, strict=True)
    return model.eval().requires_grad_(False)
