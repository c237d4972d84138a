"""Prompts from a file of JSON lines, each with what it wants otherwise than the command line says."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from dfc.artifacts import Artifact
from dfc.runtime.chat_template import load_chat_template
from dfc.runtime.cli.prompts import require_codec
from dfc.runtime.cli.sampling import BIAS, SamplingRequest
from dfc.runtime.cli.stopping import StopRequest
from dfc.runtime.errors import RunError
from dfc.runtime.messages import parse_conversation
from dfc.runtime.text import TextCodec

PROMPT_FIELDS = ("prompt", "prompt_ids", "messages")
NUMBERS = {
    "temperature": (float, 0.0, None),
    "top_p": (float, 0.0, 1.0),
    "min_p": (float, 0.0, 1.0),
    "repetition_penalty": (float, 0.0, None),
    "frequency_penalty": (float, -2.0, 2.0),
    "presence_penalty": (float, -2.0, 2.0),
    "top_k": (int, 0, None),
    "seed": (int, 0, 2**63 - 1),
    "max_new": (int, 1, None),
}
"""Fields with a number: its type, the least and the most it may be."""


@dataclass(frozen=True)
class FilePrompt:
    """One line: the prompt's token ids, and the options that hold for it."""

    place: str
    ids: list[int]
    sampling: SamplingRequest
    stopping: StopRequest


def read_prompts_file(
    path: Path, sampling: SamplingRequest, stopping: StopRequest, artifact: Artifact, codec: TextCodec | None
) -> list[FilePrompt]:
    """Return the prompts of a file, in order; empty lines are left out.

    Raises:
        RunError: the file cannot be read, or a line is not a prompt; names file and line.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise RunError(f"cannot read --prompts-file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"--prompts-file {path} is not UTF-8 text: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise RunError(f"--prompts-file {path} has no prompts; give one JSON object a line")
    return [_read_line(f"{path}, line {number}", line, sampling, stopping, artifact, codec) for number, line in lines]


def _read_line(
    place: str, line: str, sampling: SamplingRequest, stopping: StopRequest, artifact: Artifact, codec: TextCodec | None
) -> FilePrompt:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f'{place} is not an object such as {{"prompt": "text"}}')
    known = (*PROMPT_FIELDS, "tools", *NUMBERS, "logit_bias", "stop", "greedy")
    unknown = [name for name in content if name not in known]
    if unknown:
        raise RunError(f"{place} has a field {unknown[0]!r}; the fields are {', '.join(known)}")
    given = [name for name in PROMPT_FIELDS if name in content]
    if len(given) != 1:
        raise RunError(f"{place} has {' and '.join(given) or 'no prompt'}; give one of {', '.join(PROMPT_FIELDS)}")
    own: dict[str, Any] = {name: _number(content[name], name, place) for name in NUMBERS if name in content}
    if not isinstance(content.get("greedy", False), bool):
        raise RunError(f"{place}: greedy is not true or false")
    own |= {name: content[name] for name in ("greedy",) if name in content}
    if "logit_bias" in content:
        own["logit_bias"] = _biases(content["logit_bias"], place)
    if "stop" in content:
        own["stop"] = _stops(content["stop"], place)
    ids = _ids(content, given[0], place, artifact, codec)
    if not ids:
        raise RunError(f"{place}: the prompt is empty; give at least one character")
    if own.get("greedy") or own.get("temperature") == 0:
        sampling = replace(sampling, temperature=None, top_k=None, top_p=None, min_p=None, seed=None)
    return FilePrompt(place, ids, _changed(sampling, own), _changed(stopping, own))


def _changed(request: Any, own: dict[str, Any]) -> Any:
    """Return the request with those of a line's values that it has fields for."""
    names = {field.name for field in fields(request)}
    return replace(request, **{name: value for name, value in own.items() if name in names})


def _number(value: object, name: str, place: str) -> float | int:
    kind, least, most = NUMBERS[name]
    allowed = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise RunError(f"{place}: {name} is not {'a number' if kind is float else 'a whole number'}")
    if (least is not None and value < least) or (most is not None and value > most):
        raise RunError(f"{place}: {name} is {value}, it must be {f'{least} to {most}' if most else f'{least} or more'}")
    return float(value) if kind is float else value


def _biases(value: object, place: str) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, dict) or not all(type(bias) in (int, float) for bias in value.values()):
        raise RunError(f'{place}: logit_bias is not an object of token ids and numbers such as {{"198": -5}}')
    try:
        return tuple(BIAS.convert(f"{token}={bias}", None, None) for token, bias in value.items())
    except click.UsageError as error:
        raise RunError(f"{place}: logit_bias {error.message}") from None


def _stops(value: object, place: str) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RunError(f"{place}: stop is neither a text nor a list of texts")
    return tuple(texts)


def _ids(content: dict[str, Any], name: str, place: str, artifact: Artifact, codec: TextCodec | None) -> list[int]:
    value = content[name]
    if "tools" in content and name != "messages":
        raise RunError(f"{place}: tools go with messages")
    if name == "prompt_ids":
        vocab_size = artifact.manifest.model.vocab_size
        if not isinstance(value, list) or not all(type(token) is int and 0 <= token < vocab_size for token in value):
            raise RunError(f"{place}: prompt_ids is not a list of token ids below {vocab_size}")
        return value
    codec = require_codec(codec, artifact)
    if name == "prompt":
        if not isinstance(value, str):
            raise RunError(f"{place}: prompt is not a text")
        try:
            return codec.encode(value)
        except UnicodeEncodeError as error:
            raise RunError(f"{place}: prompt is not Unicode text") from error
    said = {key: content[key] for key in ("messages", "tools") if key in content}
    conversation = parse_conversation(json.dumps(said), place)
    template = load_chat_template(artifact, None, {}, with_tools=conversation.tools is not None)
    return codec.encode_rendered(template.render(conversation))
