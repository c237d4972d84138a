"""Conversations as JSON: a list of messages, or an object with `messages` and `tools`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Self

from dfc.runtime.errors import RunError

Message = dict[str, Any]
"""`role`, and what the chat template reads besides it: `content`, `tool_calls`, ..."""


@dataclass(frozen=True)
class Conversation:
    """Messages in their order, and the tools that the assistant may call (None: none are spoken of)."""

    messages: tuple[Message, ...]
    tools: list[dict[str, Any]] | None = None

    def with_message(self, role: str, content: str) -> Self:
        """Return the conversation with one more message."""
        return replace(self, messages=(*self.messages, {"role": role, "content": content}))


def parse_conversation(text: str, source: str) -> Conversation:
    """Return the conversation in a JSON text that came from `source`.

    Raises:
        RunError: it is not JSON or not of the shape that chat templates take.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{source} is not valid JSON: {error}") from error
    if isinstance(content, list):
        content = {"messages": content}
    if not isinstance(content, dict) or "messages" not in content:
        raise RunError(f"{source} is neither a list of messages nor an object with messages")
    unknown = [name for name in content if name not in ("messages", "tools")]
    if unknown:
        raise RunError(f"{source} has a field {unknown[0]!r}; an object with messages may have tools, and nothing else")
    return Conversation(_messages(content["messages"], source), _tools(content.get("tools"), source))


def _messages(content: object, source: str) -> tuple[Message, ...]:
    if not isinstance(content, list):
        raise RunError(f"{source}: messages is not a list")
    if not content:
        raise RunError(f"{source} has no messages; give at least one")
    for number, message in enumerate(content, start=1):
        if not isinstance(message, dict):
            raise RunError(f"{source}: message {number} is not an object with role and content")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise RunError(f"{source}: message {number} has no role; give one such as 'user'")
        _check_content(message.get("content"), f"{source}: message {number}")
    return tuple(content)


def _check_content(content: object, place: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise RunError(f"{place} has a content that is neither text nor a list of parts")
    for part in content:
        if not isinstance(part, dict) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else part
            raise RunError(f"{place} has a part {kind!r} in its content; only parts with text can be taken in")


def _tools(content: object, source: str) -> list[dict[str, Any]] | None:
    if content is None:
        return None
    if not isinstance(content, list) or not all(isinstance(tool, dict) for tool in content):
        raise RunError(f"{source}: tools is not a list of objects")
    return content
