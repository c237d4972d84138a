"""Files of messages: what is taken, and the sentence for what is not."""

from __future__ import annotations

import json

import pytest

from dfc.runtime.errors import RunError
from dfc.runtime.messages import Conversation, parse_conversation

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "content, expected",
    [
        ([USER], Conversation((USER,))),
        ({"messages": [USER]}, Conversation((USER,))),
        ({"messages": [USER], "tools": None}, Conversation((USER,))),
        ({"messages": [USER], "tools": [{"name": "f"}]}, Conversation((USER,), [{"name": "f"}])),
        ([{"role": "assistant", "content": None}], Conversation(({"role": "assistant", "content": None},))),
        ([{"role": "tool"}], Conversation(({"role": "tool"},))),
    ],
)
def test_shapes_that_are_taken(content: object, expected: Conversation) -> None:
    assert parse_conversation(json.dumps(content), "file") == expected


@pytest.mark.parametrize(
    "text, fragment",
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("hello", "not valid JSON"),
        ("\ufeff[]", "not valid JSON"),
        ("3", "neither a list"),
        ('"text"', "neither a list"),
        ("null", "neither a list"),
        ('{"message": []}', "neither a list"),
        ("[]", "no messages"),
        ('{"messages": []}', "no messages"),
        ('{"messages": {"role": "user"}}', "messages is not a list"),
        ('{"messages": [{"role": "user"}], "tool": []}', "'tool'"),
        ('{"messages": [{"role": "user"}], "tools": {}}', "tools is not a list"),
        ('{"messages": [{"role": "user"}], "tools": ["f"]}', "tools is not a list of objects"),
        ('["hi"]', "message 1 is not an object"),
        ('[{"role": "user", "content": "a"}, {"content": "b"}]', "message 2 has no role"),
        ('[{"role": ""}]', "message 1 has no role"),
        ('[{"role": 1}]', "message 1 has no role"),
        ('[{"role": "user", "content": 3}]', "message 1 has a content"),
        ('[{"role": "user", "content": {"text": "a"}}]', "message 1 has a content"),
        ('[{"role": "user", "content": [{"type": "image", "image": "a.png"}]}]', "message 1 has a part 'image'"),
        ('[{"role": "user", "content": ["a"]}]', "message 1 has a part 'a'"),
    ],
)
def test_what_is_wrong_is_named(text: str, fragment: str) -> None:
    with pytest.raises(RunError) as caught:
        parse_conversation(text, "--messages file.json")
    assert str(caught.value).startswith("--messages file.json")
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)
