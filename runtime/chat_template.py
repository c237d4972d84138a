"""A checkpoint's chat template: messages in, prompt text out, rendered as transformers does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import jinja2.meta
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dfc.artifacts import Artifact
from dfc.runtime.errors import RunError
from dfc.runtime.messages import Conversation

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""What a template may write by name."""

OWN_ARGUMENTS = ("messages", "tools", "add_generation_prompt")
"""What the template gets from the conversation, and no user may set."""


class ChatTemplate:
    """A template with the special tokens and arguments that it renders every conversation with."""

    def __init__(self, template: jinja2.Template, source: str, arguments: Mapping[str, object]) -> None:
        self._template = template
        self._source = source
        self._arguments = dict(arguments)

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = True) -> str:
        """Return the text of a conversation, by default up to where the assistant's answer begins.

        Raises:
            RunError: the template refuses the conversation or cannot render it.
        """
        try:
            text = self._template.render(
                {
                    "documents": None,
                    **self._arguments,
                    "messages": [_prepared(message) for message in conversation.messages],
                    "tools": conversation.tools,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
            # JSON may hold halves of characters.
            text.encode()
        # A template is a program of its own: what it does to the messages may fail in any way.
        except Exception as error:
            raise RunError(f"{self._source} cannot render these messages: {_sentence(error)}") from error
        return text


def load_chat_template(
    artifact: Artifact, file: Path | None, arguments: Mapping[str, object], *, with_tools: bool
) -> ChatTemplate:
    """Return the template in `file`, else the artifact's own; `arguments` go before its special tokens.

    Raises:
        RunError: there is no template, it cannot be read or compiled, or it does not read one of the arguments.
    """
    config = _read_config(artifact)
    source, text = _read_given(file) if file is not None else _find_own(artifact, config, with_tools=with_tools)
    environment = _environment()
    try:
        template = environment.from_string(text)
        read = jinja2.meta.find_undeclared_variables(environment.parse(text))
    except jinja2.TemplateSyntaxError as error:
        raise RunError(f"{source} is not a template, line {error.lineno}: {_sentence(error)}") from error
    for name in arguments:
        if name not in read:
            raise RunError(
                f"--template-arg {name}: {source} reads no such argument; it reads {', '.join(sorted(read))}"
            )
    return ChatTemplate(template, source, _special_tokens(config) | dict(arguments))


def _read_given(file: Path) -> tuple[str, str]:
    return f"--chat-template {file}", _read(file, f"--chat-template {file}")


def _find_own(artifact: Artifact, config: Mapping[str, Any], *, with_tools: bool) -> tuple[str, str]:
    file = artifact.path("tokenizer/chat_template.jinja")
    if file.exists():
        return str(file), _read(file, str(file))
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named["tool_use"] if with_tools and "tool_use" in named else named.get("default")
    if not isinstance(found, str):
        raise RunError(
            f"{artifact.root} has no chat template, because its checkpoint has none; give --chat-template, or the"
            " prompt as text with --prompt"
        )
    return f"chat_template of {artifact.path('tokenizer/tokenizer_config.json')}", found


def _read(file: Path, source: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{source} is not UTF-8 text: {error}") from error


def _read_config(artifact: Artifact) -> Mapping[str, Any]:
    file = artifact.path("tokenizer/tokenizer_config.json")
    if not file.exists():
        return {}
    try:
        content = json.loads(_read(file, str(file)))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise RunError(f"{file} does not hold a JSON object")
    return content


def _special_tokens(config: Mapping[str, Any]) -> dict[str, object]:
    """Return the texts of the named special tokens; older files hold an object for each."""
    found = {name: config.get(name) for name in SPECIAL_TOKENS}
    texts = {name: token.get("content") if isinstance(token, dict) else token for name, token in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names a message's reasoning goes under; templates read the first, some the second."""


def _prepared(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as templates get it from transformers: nothing that is null, reasoning under its usual names."""
    present = {key: value for key, value in message.items() if value is not None}
    reasoning = next((present[name] for name in REASONING if name in present), None)
    if reasoning is None:
        return present
    return {"thinking": reasoning, **present, "reasoning_content": reasoning}


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"


class _Generation(Extension):
    """`{% generation %}`, which marks an assistant's text for training: it renders what it holds."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A scope of its own, as in transformers, where the body is a call block.
        return [jinja2.nodes.Scope(body).set_lineno(line)]


class _Namespace(jinja2.utils.Namespace):
    """`namespace()` without names that reach into Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _refuse_private(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}, which begins with an underscore")


class _Dict:
    """`dict()` of templates: a function, not the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as it is; jinja2's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment
