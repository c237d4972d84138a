"""What ends a generation, from the command line."""

from __future__ import annotations

from dataclasses import dataclass

import click

from dfc.artifacts import Artifact
from dfc.runtime.cli.options import option_group
from dfc.runtime.cli.prompts import checked_text
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Limits
from dfc.runtime.text import TextCodec

DEFAULT_MAX_NEW = 256


@dataclass(frozen=True)
class StopRequest:
    """The options as given."""

    max_new: int
    stop: tuple[str, ...]
    stop_token_id: tuple[int, ...]
    ignore_eos: bool


stop_options = option_group(
    "stopping",
    StopRequest,
    click.option(
        "--max-new", type=click.IntRange(min=1), default=DEFAULT_MAX_NEW, show_default=True, help="Most new tokens."
    ),
    click.option(
        "--stop", multiple=True, metavar="TEXT", help="Text that ends the answer and is no part of it; may be repeated."
    ),
    click.option(
        "--stop-token-id",
        type=click.IntRange(min=0),
        multiple=True,
        help="Token that ends the answer; may be repeated.",
    ),
    click.option("--ignore-eos", is_flag=True, help="Go on after an end-of-sequence token."),
)


def read_limits(request: StopRequest, artifact: Artifact, codec: TextCodec | None) -> Limits:
    """Check the options against the artifact.

    Raises:
        RunError: the artifact has no tokenizer for stop strings.
        click.UsageError: a stop can never be met.
    """
    model = artifact.manifest.model
    for token_id in request.stop_token_id:
        if token_id >= model.vocab_size:
            raise click.UsageError(f"--stop-token-id {token_id} is past the vocabulary of {model.vocab_size}")
    for text in request.stop:
        if codec is None:
            raise RunError(f"{artifact.root} has no tokenizer, so --stop finds no text; give --stop-token-id")
        if not checked_text(text, "--stop"):
            raise click.UsageError("--stop is empty; give at least one character")
        if text in codec.special_tokens:
            token_id = codec.special_tokens[text]
            raise click.UsageError(
                f"--stop {text} is a special token, which has no text; give --stop-token-id {token_id}"
            )
    ends = () if request.ignore_eos else model.eos_token_ids
    return Limits(request.max_new, model.max_context, frozenset((*ends, *request.stop_token_id)))
