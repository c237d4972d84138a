"""Config rules that targets and drafters share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.spec import AttentionSpec

MAX_LAYERS = 4096
"""Far more than any model has: a damaged count must not cost memory before the missing tensors are noticed."""


def read_attention(config: Fields, *, default_head_dim: int) -> AttentionSpec:
    """Read the head counts and the head size."""
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"is {kv_heads}, which does not divide num_attention_heads {heads}")
    head_dim = config.integer("head_dim", default_head_dim)
    return AttentionSpec(heads, kv_heads, head_dim)


def real_vocabulary(directory: Path, vocab_size: int) -> int:
    """Return the number of leading vocabulary rows that are tokens of ``tokenizer.json``; all rows without that file.

    Raises:
        CheckpointError: the file is not a tokenizer.
    """
    file = directory / "tokenizer.json"
    if not file.exists():
        return vocab_size
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        vocabulary: Any = content["model"]["vocab"]
        # Unigram tokenizers list their tokens, the others map them to ids.
        ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else [len(vocabulary) - 1]
        ids += [token["id"] for token in content.get("added_tokens") or []]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file} is not a tokenizer that can be read: {error}") from error
    if not ids or not all(type(token_id) is int and token_id >= 0 for token_id in ids):
        raise CheckpointError(f"{file} is not a tokenizer that can be read: its token ids are not whole numbers")
    return min(max(ids) + 1, vocab_size)


def tokenizer_end_ids(directory: Path) -> tuple[int, ...]:
    """Return the ids of the tokenizer's own end token: chat models end a turn with it, and generation configs that were
    written for the base model do not name it.

    Raises:
        CheckpointError: a file is not what it should be.
    """
    config, tokenizer = directory / "tokenizer_config.json", directory / "tokenizer.json"
    if not config.exists() or not tokenizer.exists():
        return ()
    file = config
    try:
        token = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
        file = tokenizer
        added = json.loads(tokenizer.read_text(encoding="utf-8")).get("added_tokens") or []
        # Older configs hold an object with the token's text.
        text = token.get("content") if isinstance(token, dict) else token
        return tuple(int(entry["id"]) for entry in added if text is not None and entry["content"] == text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
