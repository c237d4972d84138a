"""Streaming text is the text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.runtime.text import TextCodec
from tests.runtime.byte_level import byte_tokens, tokens_of


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), invalid=st.booleans())
def test_streamed_text_is_the_text_at_once(codec: TextCodec, data: st.DataObject, invalid: bool) -> None:
    token = st.sampled_from(byte_tokens(codec)) if invalid else st.integers(0, 4095)
    pieces = data.draw(st.lists(st.lists(token | st.integers(0, 3), max_size=6), max_size=12))
    stream = codec.stream()
    given_out = ""
    for piece in pieces:
        given_out += stream.add(piece)
    token_ids = [token for piece in pieces for token in piece]
    assert given_out + stream.finish() == codec.decode(token_ids)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=20))
def test_no_character_is_split(codec: TextCodec, text: str) -> None:
    """A token for every byte: a character comes out whole, with its last one."""
    stream = codec.stream()
    for character in text:
        tokens = tokens_of(codec, character.encode(), min)
        assert len(tokens) == len(character.encode())
        pieces = [stream.add([token]) for token in tokens]
        if character != "\ufffd":
            assert pieces == [*[""] * (len(tokens) - 1), character]
    assert stream.finish() == "" or text.endswith("\ufffd")


@pytest.mark.parametrize("text", ["naïve café", "日本語のテキスト", "👩‍👩‍👧 family", "def f():\n    pass\n"])
def test_text_comes_back_whole(codec: TextCodec, text: str) -> None:
    stream = codec.stream()
    pieces = [stream.add([token]) for token in codec.encode(text)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + stream.finish() == text
