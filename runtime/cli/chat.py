"""`dfc run --chat`: a conversation on the terminal, or one message a line from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

from dfc.artifacts import Artifact
from dfc.runtime.chat import ChatSession
from dfc.runtime.cli.interrupt import Interrupt
from dfc.runtime.cli.prompts import PromptRequest, read_conversation, read_template, require_codec
from dfc.runtime.cli.stopping import StopRequest
from dfc.runtime.decode import Decoder, Round
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Generation, Limits
from dfc.runtime.text import TextCodec

EXIT = "/exit"


def prepare_chat(
    prompts: PromptRequest, stopping: StopRequest, artifact: Artifact, codec: TextCodec | None, limits: Limits
) -> Callable[[Decoder], ChatSession]:
    """Read all that a session needs but its decoder, which takes long to load.

    Raises:
        RunError: the artifact has no tokenizer or no chat template, or the messages cannot be read.
    """
    codec = require_codec(codec, artifact)
    conversation = read_conversation(prompts)
    template = read_template(prompts, conversation, artifact)
    return lambda decoder: ChatSession(decoder, codec, template, limits, stopping.stop, conversation)


def converse(session: ChatSession, on_round: Callable[[Round], None]) -> None:
    """Answer every message until `/exit` or the end of standard input.

    Raises:
        RunError: a message from a pipe cannot be answered; at a terminal it is left out, and the session goes on.
    """
    interactive = sys.stdin.isatty()
    messages = session.conversation.messages
    if messages and messages[-1]["role"] == "user":
        _answer(session, None, on_round)
    for message in _typed() if interactive else _piped():
        if message.strip() == EXIT:
            return
        if not message.strip():
            continue
        try:
            _answer(session, message, on_round)
        except RunError as error:
            if not interactive:
                raise
            click.echo(f"dfc: {error}", err=True)


def _answer(session: ChatSession, message: str | None, on_round: Callable[[Round], None]) -> None:
    with Interrupt() as interrupt:
        generation = session.ask(
            message,
            on_text=lambda text: click.echo(text, nl=False),
            interrupted=interrupt.seen,
            on_round=on_round,
        )
    click.echo()
    click.echo(f"[{_summary(generation)}]", err=True)


def _summary(generation: Generation) -> str:
    stats = generation.statistics
    return (
        f"{len(generation.token_ids)} tokens ({generation.finish_reason}), {stats.tokens_per_second:.0f} tokens/s,"
        f" {stats.prompt_tokens - stats.reused_tokens} of {stats.prompt_tokens} prompt tokens taken in"
    )


def _typed() -> Iterator[str]:
    """Yield lines from the terminal; Ctrl-C gives up a line, Ctrl-D ends."""
    click.echo(f"one message a line; Ctrl-C stops an answer, {EXIT} or Ctrl-D ends", err=True)
    while True:
        try:
            yield _edited_line()
        except KeyboardInterrupt:
            click.echo(f"\n{EXIT} or Ctrl-D ends", err=True)
        except UnicodeDecodeError as error:
            click.echo(f"dfc: that line is not UTF-8 text: {error}", err=True)
        except EOFError:
            click.echo(err=True)
            return


def _edited_line() -> str:
    if sys.stdout.isatty():
        # Importing it gives `input` editing and recall; not every Python has it.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
        return input("> ")
    # Results alone go to standard output, so the prompt does not.
    click.echo("> ", nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _piped() -> Iterator[str]:
    """Yield the lines of standard input, byte for byte but for their ends."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise RunError(f"line {number} of standard input is not UTF-8 text: {error}") from error
