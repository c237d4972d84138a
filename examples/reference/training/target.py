"""The target: a small Qwen3.5 text model, trained with transformers' own implementation."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from training.corpus import END_OF_TEXT, END_OF_TURN, TOKENS_FILE, batches, load_tokens
from training.scale import Scale
from training.schedule import Budget, steps

PEAK_LEARNING_RATE = 2e-3
REPORT_EVERY = 200


def target_config(scale: Scale) -> Qwen3_5TextConfig:
    rotary_pairs = scale.head_dim // 8
    side = rotary_pairs * 3 // 8
    return Qwen3_5TextConfig(
        vocab_size=scale.vocab_size,
        hidden_size=scale.hidden_size,
        intermediate_size=scale.intermediate_size,
        num_hidden_layers=scale.target_layers,
        # full attention in every fourth layer, and in the last of a model too short to have a fourth
        full_attention_interval=min(4, scale.target_layers),
        num_attention_heads=scale.heads,
        num_key_value_heads=scale.kv_heads,
        head_dim=scale.head_dim,
        linear_num_key_heads=scale.gdn_key_heads,
        linear_num_value_heads=scale.gdn_value_heads,
        linear_key_head_dim=scale.gdn_head_dim,
        linear_value_head_dim=scale.gdn_head_dim,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "mrope_section": [side, side, rotary_pairs - 2 * side],
            "mrope_interleaved": True,
        },
        eos_token_id=END_OF_TURN,
        pad_token_id=END_OF_TEXT,
        bos_token_id=None,
        attn_implementation="sdpa",
    )


def train_target(output: Path, corpus: Path, scale: Scale, budget: Budget, device: str) -> None:
    """Trains on everything but the held-out tokens and writes a bfloat16 checkpoint with the corpus' tokenizer."""
    token_ids = load_tokens(corpus)
    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(target_config(scale)).to(device)
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters", flush=True)
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=device == "cuda")
    windows = batches(token_ids[scale.held_out_tokens :], scale.target_batch, scale.context, seed=1, device=device)
    for step in steps(budget, optimizer, PEAK_LEARNING_RATE):
        loss = next_token_loss(model, next(windows), device)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % REPORT_EVERY == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print(f"held-out loss {held_out_loss(model, token_ids, scale, device):.4f}", flush=True)
    model.to(torch.bfloat16).save_pretrained(output, max_shard_size="10MB")
    for file in corpus.iterdir():
        if file.name != TOKENS_FILE:
            shutil.copy(file, output / file.name)


def next_token_loss(model: Qwen3_5ForCausalLM, windows: Tensor, device: str) -> Tensor:
    """Mean cross entropy in nats over windows [rows, context]."""
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = model(input_ids=windows).logits
    return cross_entropy(logits[:, :-1].float().flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: Qwen3_5ForCausalLM, token_ids: Tensor, scale: Scale, device: str) -> float:
    count = scale.target_eval_sequences
    windows = token_ids[: scale.context * count].view(-1, min(16, count), scale.context).long().to(device)
    losses = [next_token_loss(model, window, device).item() for window in windows]
    return sum(losses) / len(losses)
