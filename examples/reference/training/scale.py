"""How large the models are and how long they train."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DFlash2Shape:
    """Sizes of the drafter that its target does not decide."""

    block_size: int = 8
    conv_kernel_size: int = 2
    conv_group_size: int = 16
    selector_rank: int = 64
    selector_top_k: int = 16
    layers: int = 3
    target_layer_ids: tuple[int, ...] = (1, 3, 5)
    rope_theta: float = 1e6


@dataclass(frozen=True)
class Scale:
    """Model sizes, corpus size in characters, batch sizes in sequences, and the share held out, in tokens.

    ``anchors`` is how many blocks a sequence trains per step. Evaluation lets the target continue ``eval_rows``
    held-out prompts of ``eval_prompt`` tokens by ``eval_tokens`` and judges drafts behind the first ``eval_anchors`` of
    them.
    """

    vocab_size: int = 4096
    context: int = 512
    hidden_size: int = 256
    intermediate_size: int = 768
    target_layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    gdn_key_heads: int = 4
    gdn_value_heads: int = 8
    gdn_head_dim: int = 32
    corpus_characters: int = 90_000_000
    tokenizer_files: int = 1500
    held_out_tokens: int = 200_000
    target_batch: int = 96
    target_eval_sequences: int = 64
    drafter_batch: int = 48
    anchors: int = 32
    mtp_steps: int = 3
    eval_rows: int = 32
    eval_prompt: int = 192
    eval_tokens: int = 160
    eval_anchors: int = 138
    dflash2: DFlash2Shape = DFlash2Shape()


FULL = Scale()

SMOKE = Scale(
    vocab_size=320,
    context=64,
    hidden_size=64,
    intermediate_size=96,
    target_layers=2,
    head_dim=32,
    gdn_key_heads=2,
    gdn_value_heads=4,
    gdn_head_dim=16,
    corpus_characters=120_000,
    tokenizer_files=20,
    held_out_tokens=4_000,
    target_batch=4,
    target_eval_sequences=4,
    drafter_batch=2,
    anchors=4,
    eval_rows=2,
    eval_prompt=24,
    eval_tokens=40,
    eval_anchors=20,
    dflash2=DFlash2Shape(block_size=4, selector_rank=8, selector_top_k=4, layers=1, target_layer_ids=(0, 1)),
)
