"""`dfc run`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from dfc.artifacts import Artifact, ArtifactError, open_artifact
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.trace import TraceFile
from dfc.runtime.engines import choose_backend
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Generation, Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.plan import AUTO, CHOICES, RunContext, SpeculationPlan, SpeculationRequest, resolve
from dfc.runtime.text import TextCodec, load_codec

DEFAULT_MAX_NEW = 256


@click.command(short_help="Generate from an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option("--prompt", help="Prompt text.")
@click.option("--prompt-file", type=click.Path(path_type=Path), help="File whose text is the prompt, byte for byte.")
@click.option("--prompt-ids", help="Prompt as token ids: 1,2,3.")
@click.option(
    "--spec",
    type=click.Choice(CHOICES),
    default=AUTO,
    show_default=True,
    help="Drafter; auto takes the best one the artifact holds.",
)
@click.option("--draft-tokens", type=click.IntRange(min=0), help="Tokens drafted in a round.  [default: the drafter's]")
@click.option(
    "--max-new", type=click.IntRange(min=1), default=DEFAULT_MAX_NEW, show_default=True, help="Most new tokens."
)
@click.option("--ignore-eos", is_flag=True, help="Go on after an end-of-sequence token.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with text, token ids and statistics.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Write a JSON line for each round: anchor, proposed, accepted."
)
@debug_option
def run(
    artifact: Path,
    prompt: str | None,
    prompt_file: Path | None,
    prompt_ids: str | None,
    spec: str,
    draft_tokens: int | None,
    max_new: int,
    ignore_eos: bool,
    as_json: bool,
    trace: Path | None,
) -> None:
    """Generate greedily from ARTIFACT; the tokens do not depend on the drafter.

    Without --prompt, --prompt-file or --prompt-ids the prompt is read from standard input. Text streams to standard
    output, statistics go to standard error.
    """
    if sum(source is not None for source in (prompt, prompt_file, prompt_ids)) > 1:
        raise click.UsageError("give one of --prompt, --prompt-file and --prompt-ids")
    try:
        opened = open_artifact(artifact)
        backend = choose_backend(opened)
        plan = resolve(SpeculationRequest(spec, draft_tokens), opened.manifest, RunContext(backend))
        codec = load_codec(opened)
        ids = _parse_ids(prompt_ids, opened) if prompt_ids is not None else _encode(prompt, prompt_file, codec, opened)
        limits = _limits(opened, len(ids), max_new, ignore_eos)
        decoder = load_decoder(opened, plan, backend)
        stream = codec.stream() if codec is not None and not as_json else None

        def show(tokens: Sequence[int]) -> None:
            if stream is not None:
                click.echo(stream.add(tokens), nl=False)

        with TraceFile(trace) as tracer:
            generation = generate(decoder, ids, limits, on_tokens=show, on_round=tracer.write)
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(_report(generation, plan, codec)))
        return
    if stream is not None:
        click.echo(stream.finish())
    else:
        click.echo(",".join(map(str, generation.token_ids)))
    _print_statistics(generation, plan)


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


def _encode(prompt: str | None, prompt_file: Path | None, codec: TextCodec | None, artifact: Artifact) -> list[int]:
    if codec is None:
        raise RunError(f"{artifact.root} has no tokenizer, because its checkpoint has none; give --prompt-ids")
    if prompt is not None:
        source, text = "--prompt", prompt
    elif prompt_file is not None:
        try:
            source, text = f"--prompt-file {prompt_file}", prompt_file.read_bytes().decode()
        except OSError as error:
            raise RunError(f"cannot read --prompt-file {prompt_file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RunError(f"--prompt-file {prompt_file} is not UTF-8 text: {error}") from error
    else:
        if sys.stdin.isatty():
            click.echo("reading the prompt from the terminal; end it with Ctrl-D", err=True)
        try:
            source, text = "standard input", sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise RunError(f"standard input is not UTF-8 text: {error}") from error
    ids = codec.encode(text)
    if not ids:
        raise click.UsageError(f"the prompt from {source} is empty; give at least one character")
    return ids


def _limits(artifact: Artifact, prompt_tokens: int, max_new: int, ignore_eos: bool) -> Limits:
    model = artifact.manifest.model
    if prompt_tokens >= model.max_context:
        raise RunError(
            f"the prompt has {prompt_tokens} tokens, which leaves no room in the artifact's context of"
            f" {model.max_context}; shorten it or build with a larger --max-context"
        )
    stops = frozenset() if ignore_eos else frozenset(model.eos_token_ids)
    return Limits(max_new=max_new, max_context=model.max_context, stop_token_ids=stops)


def _report(generation: Generation, plan: SpeculationPlan, codec: TextCodec | None) -> dict[str, object]:
    return {
        "text": None if codec is None else codec.decode(generation.token_ids),
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish_reason,
        "speculation": plan.describe(),
        "stats": asdict(generation.statistics),
    }


def _print_statistics(generation: Generation, plan: SpeculationPlan) -> None:
    stats = generation.statistics
    lines = [
        f"{len(generation.token_ids)} tokens ({generation.finish_reason}), {stats.tokens_per_second:.0f} tokens/s,"
        f" prefill {stats.prefill_seconds * 1e3:.1f} ms, decode {stats.decode_seconds * 1e3:.1f} ms",
        f"speculation {plan.speculation}, {plan.draft_tokens} draft tokens ({plan.reason})",
    ]
    if stats.drafted_tokens:
        per_position = " ".join(f"{count / stats.rounds:.0%}" for count in stats.accepted_per_position)
        lines.append(
            f"{stats.rounds} rounds, {stats.tokens_per_round:.2f} tokens a round, {stats.accepted_tokens} of"
            f" {stats.drafted_tokens} drafts accepted ({stats.acceptance_rate:.0%}); by position {per_position}"
        )
    for line in lines:
        click.echo(line, err=True)
