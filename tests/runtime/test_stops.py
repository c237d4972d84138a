"""Stop strings against a search of the full text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.runtime.stops import AnswerText
from dfc.runtime.text import TextCodec
from tests.runtime.byte_level import tokens_of


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """Try every end and every beginning: the text before the stop that is complete first, the longest of those."""
    for end in range(1, len(text) + 1):
        for begin in range(end):
            if text[begin:end] in stops:
                return text[:begin], text[begin:end]
    return text, None


def feed(codec: TextCodec, token_ids: Sequence[int], stops: Sequence[str]) -> tuple[list[str], int | None, AnswerText]:
    """Return the pieces given out, how many tokens were taken when a stop was met, and the answer."""
    answer = AnswerText(codec.stream(), stops)
    pieces = []
    for count, token in enumerate(token_ids, start=1):
        matched = answer.add(token)
        pieces.append(answer.take())
        if matched is not None:
            return [*pieces, answer.finish()], count, answer
    return [*pieces, answer.finish()], None, answer


# Few letters, so that stops overlap each other and themselves, and characters of several bytes.
LETTERS = st.text("abé日👩", max_size=30)
STOPS = st.lists(st.text("abé日👩", min_size=1, max_size=4), max_size=4)


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=LETTERS, stops=STOPS, data=st.data())
def test_text_ends_before_the_first_stop(codec: TextCodec, text: str, stops: list[str], data: st.DataObject) -> None:
    """Tokens border anywhere, inside of characters too."""
    token_ids = any_tokens(codec, text, data)
    expected, matched = first_stop(text, stops)
    pieces, count, answer = feed(codec, token_ids, stops)
    assert "".join(pieces) == answer.text == expected
    assert answer.matched == matched
    assert (count is None) == (matched is None)
    if count is not None:
        # The token that completes it: without it no stop is there.
        assert first_stop(codec.decode(token_ids[: count - 1]), stops)[1] is None
        assert first_stop(codec.decode(token_ids[:count]), stops)[1] == matched


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=LETTERS, stops=STOPS, data=st.data())
def test_what_is_given_out_stands(codec: TextCodec, text: str, stops: list[str], data: st.DataObject) -> None:
    """Whatever would follow, nothing given out is part of a stop; and nothing is held back that cannot be."""
    answer = AnswerText(codec.stream(), stops)
    given_out = ""
    token_ids = any_tokens(codec, text, data)
    for count, token in enumerate(token_ids, start=1):
        answer.add(token)
        given_out += answer.take()
        if answer.matched is not None:
            break
        decoded = codec.decode(token_ids[:count])
        held = decoded.removeprefix(given_out).rstrip("\ufffd")
        assert given_out + held == decoded.rstrip("\ufffd")
        beginnings = [stop[:size] for stop in stops for size in range(1, len(stop))]
        assert held == max((begun for begun in beginnings if (given_out + held).endswith(begun)), key=len, default="")


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(token_ids=st.lists(st.integers(0, 4095), min_size=1, max_size=30), data=st.data())
def test_stops_from_the_text_of_random_tokens(codec: TextCodec, token_ids: list[int], data: st.DataObject) -> None:
    text = codec.decode(token_ids)
    begin = data.draw(st.integers(0, max(0, len(text) - 1)))
    stop = text[begin : begin + data.draw(st.integers(1, 6))]
    stops = [stop] if stop and "\ufffd" not in stop else []
    expected, matched = first_stop(text, stops)
    pieces, _, answer = feed(codec, token_ids, stops)
    assert ("".join(pieces), answer.matched) == (expected, matched)


def any_tokens(codec: TextCodec, text: str, data: st.DataObject) -> list[int]:
    """Return tokens of the text that border where the draw says."""
    return tokens_of(codec, text.encode(), lambda sizes: data.draw(st.sampled_from(sizes)))
