"""Tokens of any bytes, from a byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dfc.runtime.text import TextCodec


def byte_tokens(codec: TextCodec) -> list[int]:
    """Return the tokens of one byte, in the order of the bytes."""
    vocabulary = codec._tokenizer.get_vocab()
    return [vocabulary[BYTES[byte]] for byte in range(256)]


def tokens_of(codec: TextCodec, content: bytes, choose: Callable[[Sequence[int]], int]) -> list[int]:
    """Return tokens that together are `content`; `choose` takes the bytes of the next token from those possible."""
    vocabulary = codec._tokenizer.get_vocab()
    shown = "".join(BYTES[byte] for byte in content)
    token_ids = []
    while shown:
        size = choose([size for size in range(1, min(4, len(shown)) + 1) if shown[:size] in vocabulary])
        token_ids.append(vocabulary[shown[:size]])
        shown = shown[size:]
    return token_ids


def _byte_characters() -> dict[int, str]:
    """Return how byte-level tokenizers write each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


BYTES = _byte_characters()
