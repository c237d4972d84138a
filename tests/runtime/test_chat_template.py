"""Rendered prompts are transformers'; failures of templates are one sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from dfc.artifacts import Artifact
from dfc.runtime.chat_template import load_chat_template
from dfc.runtime.errors import RunError
from dfc.runtime.messages import Conversation, parse_conversation
from dfc.runtime.text import load_codec
from tests.paths import REFERENCE

TEMPLATES = Path(__file__).with_name("templates")
NAMES = ("reference", "reasoning", "plain")

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather <now> in a città",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "clock", "parameters": {}}},
]
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": [1, 2], "n": 3}}}
SYSTEM = {"role": "system", "content": "  Be brief.\n"}
USER = {"role": "user", "content": "What is <|im_end|> for? 👩‍👩‍👧\n\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt ends a turn.", "reasoning_content": None}
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "one message": [USER],
    "system": [SYSTEM, USER],
    "reasoning in the text": [USER, THOUGHT, USER],
    "reasoning of its own": [SYSTEM, USER, {"role": "assistant", "content": "Yes.", "reasoning": "so"}, USER],
    "thinking by its older name": [USER, {"role": "assistant", "content": "Yes.", "thinking": "so"}],
    "a tool": [
        USER,
        {"role": "assistant", "content": None, "reasoning_content": "look", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "sun"},
        {"role": "assistant", "content": "Rain.", "tool_calls": [CALL]},
        {"role": "tool", "content": [{"type": "text", "text": "snow"}]},
    ],
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(REFERENCE / "target")


def rendered(
    artifact: Artifact, name: str, conversation: Conversation, arguments: dict[str, object], *, begin: bool = True
) -> list[int]:
    codec = load_codec(artifact)
    assert codec is not None
    file = None if name == "reference" else TEMPLATES / f"{name}.jinja"
    template = load_chat_template(artifact, file, arguments, with_tools=conversation.tools is not None)
    return codec.encode_rendered(template.render(conversation, add_generation_prompt=begin))


def transformers_ids(
    tokenizer: Any, name: str, conversation: Conversation, arguments: dict[str, object], *, begin: bool = True
) -> list[int]:
    text = None if name == "reference" else (TEMPLATES / f"{name}.jinja").read_text()
    ids: list[int] = tokenizer.apply_chat_template(
        list(conversation.messages),
        tools=conversation.tools,
        chat_template=text,
        add_generation_prompt=begin,
        return_dict=False,
        **arguments,
    )
    return ids


def cases() -> list[tuple[str, str, bool | None]]:
    """Every template, history and thinking argument; the reference template reads no argument and every content."""
    thinking = (None, True, False)
    own = [(name, history, choice) for name in NAMES[1:] for history in HISTORIES for choice in thinking]
    return [("reference", history, None) for history in HISTORIES if history != "a tool"] + own


@pytest.mark.parametrize("begin", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("name, history, thinking", cases())
def test_ids_equal_transformers(
    reference_artifact: Artifact,
    tokenizer: Any,
    name: str,
    history: str,
    tools: list[dict[str, Any]] | None,
    thinking: bool | None,
    begin: bool,
) -> None:
    arguments: dict[str, object] = {} if thinking is None else {"enable_thinking": thinking}
    text = json.dumps({"messages": HISTORIES[history], "tools": tools})
    conversation = parse_conversation(text, "messages")
    ids = rendered(reference_artifact, name, conversation, arguments, begin=begin)
    assert ids == transformers_ids(tokenizer, name, conversation, arguments, begin=begin)


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["<|im_end|>\n", "</think>", "<think>\nx\n</think>\n\ny", "{{ 1 }}", "{% if %}", " \n", "é\u0301"]),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]), "content": TEXTS},
    optional={"reasoning_content": TEXTS, "name": TEXTS},
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(MESSAGES, max_size=5),
    system=st.none() | TEXTS,
    thinking=st.booleans(),
    name=st.sampled_from(NAMES),
)
def test_any_conversation_equals_transformers(
    reference_artifact: Artifact,
    tokenizer: Any,
    messages: list[dict[str, Any]],
    system: str | None,
    thinking: bool,
    name: str,
) -> None:
    before = [] if system is None else [{"role": "system", "content": system}]
    conversation = Conversation((*before, *messages, USER))
    arguments: dict[str, object] = {} if name == "reference" else {"enable_thinking": thinking}
    ids = rendered(reference_artifact, name, conversation, arguments)
    assert ids == transformers_ids(tokenizer, name, conversation, arguments)


def edited(artifact: Artifact, root: Path, template: str | None, config: object) -> Artifact:
    """Return the artifact with another tokenizer folder."""
    folder = root / "tokenizer"
    folder.mkdir()
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return replace(artifact, root=root)


NAMED = [{"name": "default", "template": "A{{ bos_token }}"}, {"name": "tool_use", "template": "B"}]


@pytest.mark.parametrize(
    "template, config, tools, text",
    [
        ("X", {"chat_template": "Y"}, None, "X"),
        (None, {"chat_template": "Y{{ eos_token }}", "eos_token": {"content": "<e>"}}, None, "Y<e>"),
        (None, {"chat_template": NAMED, "bos_token": "<b>"}, None, "A<b>"),
        (None, {"chat_template": NAMED}, TOOLS, "B"),
        (None, {"chat_template": NAMED[:1]}, TOOLS, "A"),
    ],
)
def test_where_the_template_is(
    reference_artifact: Artifact, tmp_path: Path, template: str | None, config: Any, tools: Any, text: str
) -> None:
    artifact = edited(reference_artifact, tmp_path, template, config)
    loaded = load_chat_template(artifact, None, {}, with_tools=tools is not None)
    assert loaded.render(Conversation((USER,), tools)) == text


@pytest.mark.parametrize(
    "template, fragments",
    [
        ("{{ raise_exception('roles must alternate') }}", ("cannot render", "roles must alternate")),
        ("a\n{% if %}", ("is not a template, line 2",)),
        ("{{ absent.name }}", ("'absent' is undefined",)),
        ("{{ messages[0].content + 1 }}", ("TypeError",)),
        ("{{ messages.append(1) }}", ("cannot render", "list")),
        ("{{ ''.__class__.__mro__ }}", ("unsafe",)),
        ("{% set n = namespace(__x=1) %}", ("underscore",)),
        ("{% set n = namespace() %}{% set n._x = 1 %}", ("underscore",)),
        ("{{ messages[0].half }}", ("surrogates",)),
        ("{{ 1 // 0 }}", ("ZeroDivisionError",)),
    ],
)
def test_failures_are_one_sentence(
    reference_artifact: Artifact, tmp_path: Path, template: str, fragments: Sequence[str]
) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(template)
    with pytest.raises(RunError) as caught:
        load_chat_template(reference_artifact, file, {}, with_tools=False).render(
            Conversation(({"role": "user", "content": "a", "half": "\ud800"},))
        )
    message = str(caught.value)
    assert "\n" not in message
    for fragment in (f"--chat-template {file}", *fragments):
        assert fragment in message


@pytest.mark.parametrize("content", [b"\xff", None])
def test_a_template_file_that_cannot_be_read(
    reference_artifact: Artifact, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "own.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RunError, match=r"own\.jinja"):
        load_chat_template(reference_artifact, file, {}, with_tools=False)


@pytest.mark.parametrize("config", [{}, {"chat_template": NAMED[1:]}, {"chat_template": 3}])
def test_no_template_at_all(reference_artifact: Artifact, tmp_path: Path, config: object) -> None:
    artifact = edited(reference_artifact, tmp_path, None, config)
    with pytest.raises(RunError, match="--chat-template"):
        load_chat_template(artifact, None, {}, with_tools=False)


def test_an_argument_that_the_template_does_not_read(reference_artifact: Artifact) -> None:
    file = TEMPLATES / "reasoning.jinja"
    with pytest.raises(RunError, match=r"enable_thinkin: .* it reads .*enable_thinking"):
        load_chat_template(reference_artifact, file, {"enable_thinkin": False}, with_tools=False)
