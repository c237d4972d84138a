"""Streaming text is the text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.artifacts import Artifact
from dfc.runtime.text import TextCodec, load_codec


@pytest.fixture(scope="session")
def codec(reference_artifact: Artifact) -> TextCodec:
    loaded = load_codec(reference_artifact)
    assert loaded is not None
    return loaded


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 4095), max_size=30))
def test_streamed_text_is_the_text_at_once(codec: TextCodec, token_ids: list[int]) -> None:
    stream = codec.stream()
    pieces = [stream.add([token]) for token in token_ids]
    assert "".join(pieces) + stream.finish() == codec.decode(token_ids)


@pytest.mark.parametrize("text", ["naïve café", "日本語のテキスト", "👩‍👩‍👧 family", "def f():\n    pass\n"])
def test_no_character_is_split(codec: TextCodec, text: str) -> None:
    stream = codec.stream()
    pieces = [stream.add([token]) for token in codec.encode(text)]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) + stream.finish() == text
