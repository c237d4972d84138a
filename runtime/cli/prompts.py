"""The prompt, from the command line: text, token ids, or messages through the chat template."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import click

from dfc.artifacts import Artifact
from dfc.runtime.chat_template import OWN_ARGUMENTS, ChatTemplate, load_chat_template
from dfc.runtime.cli.options import option_group
from dfc.runtime.errors import RunError
from dfc.runtime.messages import Conversation, parse_conversation
from dfc.runtime.text import TextCodec

STDIN = Path("-")


@dataclass(frozen=True)
class PromptRequest:
    """The options as given."""

    prompt: str | None
    prompt_file: Path | None
    prompt_ids: str | None
    prompts_file: Path | None
    messages: Path | None
    chat: bool
    system: str | None
    chat_template: Path | None
    template_arg: tuple[str, ...]

    @property
    def templated(self) -> bool:
        """Whether the chat template makes the prompt."""
        return self.chat or self.messages is not None

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            click.UsageError: they do not.
        """
        raw = [
            name for name in ("prompt", "prompt_file", "prompt_ids", "prompts_file") if getattr(self, name) is not None
        ]
        if len(raw) + self.templated > 1:
            raise click.UsageError(
                "give one of --prompt, --prompt-file, --prompt-ids, --prompts-file and --messages or --chat"
            )
        if self.chat and self.messages == STDIN:
            raise click.UsageError("--chat reads standard input itself; give --messages a file")
        for name in ("system", "chat_template", "template_arg"):
            if getattr(self, name) not in (None, ()) and not self.templated:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --messages or --chat: other prompts are raw")


prompt_options = option_group(
    "prompts",
    PromptRequest,
    click.option("--prompt", help="Prompt text, as it is."),
    click.option(
        "--prompt-file", type=click.Path(path_type=Path), help="File whose text is the prompt, byte for byte."
    ),
    click.option("--prompt-ids", help="Prompt as token ids: 1,2,3."),
    click.option(
        "--prompts-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Many prompts: JSON lines with prompt, prompt_ids or messages, and options such as max_new or seed.",
    ),
    click.option(
        "--messages",
        type=click.Path(path_type=Path),
        metavar="FILE|-",
        help="JSON list of messages, or an object with messages and tools, for the chat template.",
    ),
    click.option("--chat", is_flag=True, help="Talk: one message a line; --messages gives what was said before."),
    click.option("--system", metavar="TEXT", help="System message before the others."),
    click.option(
        "--chat-template", type=click.Path(path_type=Path), metavar="FILE", help="Template instead of the artifact's."
    ),
    click.option(
        "--template-arg",
        multiple=True,
        metavar="NAME=VALUE",
        help="Argument of the template, as JSON or text: enable_thinking=false.",
    ),
)


def read_prompt(request: PromptRequest, artifact: Artifact, codec: TextCodec | None) -> list[int]:
    """Return the prompt's token ids.

    Raises:
        RunError: it cannot be read, parsed or rendered.
        click.UsageError: it is empty or no list of token ids.
    """
    if request.prompt_ids is not None:
        return _parse_ids(request.prompt_ids, artifact)
    codec = require_codec(codec, artifact)
    if request.messages is not None:
        conversation = read_conversation(request)
        ids = codec.encode_rendered(read_template(request, conversation, artifact).render(conversation))
        source = f"--messages {request.messages}"
    elif request.prompt is not None:
        source, ids = "--prompt", codec.encode(checked_text(request.prompt, "--prompt"))
    elif request.prompt_file is not None:
        source = f"--prompt-file {request.prompt_file}"
        ids = codec.encode(_read_text(request.prompt_file, source))
    else:
        source, ids = "standard input", codec.encode(_read_text(STDIN, "standard input"))
    if not ids:
        raise click.UsageError(f"the prompt from {source} is empty; give at least one character")
    return ids


def read_conversation(request: PromptRequest) -> Conversation:
    """Return the messages given, after the system message; none for a chat that begins.

    Raises:
        RunError: the file cannot be read or is no conversation.
    """
    conversation = Conversation(())
    if request.messages is not None:
        source = "standard input" if request.messages == STDIN else f"--messages {request.messages}"
        conversation = parse_conversation(_read_text(request.messages, source), source)
    if request.system is None:
        return conversation
    checked_text(request.system, "--system")
    if any(message["role"] == "system" for message in conversation.messages):
        raise RunError("--system would be a second system message; leave it out of one of the two places")
    return replace(conversation, messages=({"role": "system", "content": request.system}, *conversation.messages))


def read_template(request: PromptRequest, conversation: Conversation, artifact: Artifact) -> ChatTemplate:
    """Return the chat template with its arguments.

    Raises:
        RunError: there is none, or it cannot be used.
        click.UsageError: an argument is not NAME=VALUE, or is the conversation's own.
    """
    arguments = dict(map(_parse_argument, request.template_arg))
    return load_chat_template(artifact, request.chat_template, arguments, with_tools=conversation.tools is not None)


def checked_text(text: str, option: str) -> str:
    """Return an option's text.

    Raises:
        click.UsageError: its bytes were not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{option} is not UTF-8 text") from error
    return text


def _parse_argument(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--template-arg {text!r} is not NAME=VALUE")
    if name in OWN_ARGUMENTS:
        raise click.UsageError(f"--template-arg {name} is made from the messages; leave it out")
    try:
        return name, json.loads(value, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return name, value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_ids(text: str, artifact: Artifact) -> list[int]:
    vocab_size = artifact.manifest.model.vocab_size
    ids = []
    for part in text.split(","):
        if not part.strip().isdecimal():
            raise click.UsageError(f"--prompt-ids: {part.strip()!r} is not a token id; give numbers such as 1,2,3")
        ids.append(int(part))
        if ids[-1] >= vocab_size:
            raise click.UsageError(f"--prompt-ids: {ids[-1]} is past the vocabulary of {vocab_size}")
    return ids


def _read_text(file: Path, source: str) -> str:
    try:
        if file == STDIN:
            if sys.stdin.isatty():
                click.echo("reading the prompt from the terminal; end it with Ctrl-D", err=True)
            return sys.stdin.buffer.read().decode()
        return file.read_bytes().decode()
    except OSError as error:
        raise RunError(f"cannot read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{source} is not UTF-8 text: {error}") from error


def require_codec(codec: TextCodec | None, artifact: Artifact) -> TextCodec:
    """Return the tokenizer.

    Raises:
        RunError: there is none.
    """
    if codec is None:
        raise RunError(f"{artifact.root} has no tokenizer, because its checkpoint has none; give --prompt-ids")
    return codec
