"""The corpus: Python source of this machine's standard library and installed packages, and a tokenizer for it."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from training.scale import Scale

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
END_OF_TEXT, _, END_OF_TURN, MASK = range(4)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS_FILE = "tokens.safetensors"
FILES_PER_CALL = 512


def make_corpus(directory: Path, scale: Scale) -> None:
    """Writes the tokenizer and the whole corpus as token ids."""
    texts = python_sources(scale.corpus_characters)
    print(f"{len(texts)} files, {sum(map(len, texts))} characters", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts[: scale.tokenizer_files], scale.vocab_size)
    tokenizer.save_pretrained(directory)
    token_ids = encode(tokenizer, texts)
    print(f"{len(token_ids)} tokens", flush=True)
    save_file({"token_ids": token_ids}, directory / TOKENS_FILE)


def load_tokens(directory: Path) -> Tensor:
    """Token ids [n] int32 of a corpus directory."""
    return load_file(directory / TOKENS_FILE)["token_ids"]


def python_sources(characters: int) -> list[str]:
    """ASCII sources of 400 to 60,000 characters in a fixed shuffled order, until ``characters`` are passed."""
    roots = {sysconfig.get_paths()[key] for key in ("stdlib", "purelib")}
    # purelib lies inside stdlib on some machines, so files are taken once by path
    files = sorted({file for root in roots for file in Path(root).rglob("*.py")})
    random.Random(0).shuffle(files)
    texts: list[str] = []
    total = 0
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if 400 < len(text) < 60_000 and text.isascii():
            texts.append(text)
            total += len(text)
            if total > characters:
                break
    return texts


def train_tokenizer(texts: list[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[END_OF_TURN],
        pad_token=SPECIAL_TOKENS[END_OF_TEXT],
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> Tensor:
    """All texts one after the other, each closed by end-of-text; [n] int32."""
    token_ids: list[int] = []
    for start in range(0, len(texts), FILES_PER_CALL):
        for encoded in tokenizer(texts[start : start + FILES_PER_CALL])["input_ids"]:
            token_ids.extend(encoded)
            token_ids.append(END_OF_TEXT)
    return torch.tensor(token_ids, dtype=torch.int32)


def batches(token_ids: Tensor, rows: int, context: int, seed: int, device: str) -> Iterator[Tensor]:
    """Random windows, [rows, context] int64, for ever."""
    generator = torch.Generator().manual_seed(seed)
    last = len(token_ids) - context - 8
    while True:
        starts = torch.randint(0, last, (rows,), generator=generator).tolist()
        yield torch.stack([token_ids[start : start + context] for start in starts]).long().to(device)
