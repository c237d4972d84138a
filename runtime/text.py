"""Text in, token ids through, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from dfc.artifacts import Artifact
from dfc.runtime.errors import RunError


class TextCodec:
    """The artifact's tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self.special_tokens: Mapping[str, int] = {token.content: id_ for id_, token in added.items() if token.special}
        """The ids of tokens that have no text in an answer."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a prompt, special tokens in it recognised, and those that the tokenizer puts around
        a text."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        """Return the token ids of a rendered conversation, which has its special tokens in it."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids; special tokens have none."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def decode_rendered(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens written out."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        return text

    def stream(self) -> TextStream:
        """Return a decoder for tokens that come one after the other."""
        return TextStream(self._tokenizer)


class TextStream:
    """Gives text as soon as it is certain: never half a character, and in all the same as decoding at once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._token_ids: list[int] = []
        self._given = ""

    def add(self, token_ids: Sequence[int]) -> str:
        """Return the text that these tokens make certain."""
        self._token_ids.extend(token_ids)
        pieces = [self._stream.step(self._tokenizer, token) or "" for token in token_ids]
        text = "".join(pieces)
        self._given += text
        return text

    def finish(self) -> str:
        """Return what is left when no token follows: the text of an unfinished character."""
        whole: str = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
        return whole.removeprefix(self._given) if whole.startswith(self._given) else ""


def load_codec(artifact: Artifact) -> TextCodec | None:
    """Return the artifact's tokenizer, None when the checkpoint had none.

    Raises:
        RunError: the file is damaged.
    """
    file: Path = artifact.path("tokenizer/tokenizer.json")
    if not file.exists():
        return None
    try:
        return TextCodec(Tokenizer.from_file(str(file)))
    except Exception as error:
        raise RunError(f"{file} is not a tokenizer that can be read: {error}") from error
