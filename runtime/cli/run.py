"""`dfc run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from dfc.artifacts import ArtifactError, open_artifact
from dfc.runtime.cli.chat import converse, prepare_chat
from dfc.runtime.cli.checking import check_on_load, skip_check
from dfc.runtime.cli.interrupt import INTERRUPTED, Interrupt
from dfc.runtime.cli.many import prepare_jobs, run_batch, run_jobs, with_own_seeds
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.prompts import PromptRequest, prompt_options, read_prompt
from dfc.runtime.cli.prompts_file import read_prompts_file
from dfc.runtime.cli.report import report
from dfc.runtime.cli.sampling import SamplingRequest, describe, resolve_sampling, sampling_options
from dfc.runtime.cli.stopping import StopRequest, read_limits, stop_options
from dfc.runtime.cli.trace import TraceFile
from dfc.runtime.drafters import KINDS
from dfc.runtime.engines import choose_backend
from dfc.runtime.engines.onnxruntime import BACKEND as ONNXRUNTIME
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Generation, check_room, generate
from dfc.runtime.generation_config import read_defaults
from dfc.runtime.load import decoder_files, load_batch, load_decoder, text_files
from dfc.runtime.plan import AUTO, CHOICES, Plan, RunContext, SpeculationRequest, resolve, resolve_thresholds
from dfc.runtime.policy import Segment, parse_segments
from dfc.runtime.sampling import Sampling
from dfc.runtime.stops import AnswerText
from dfc.runtime.text import load_codec


def _read_policy(context: click.Context, option: click.Parameter, text: str | None) -> tuple[Segment, ...] | None:
    if text is None:
        return None
    try:
        return parse_segments(text, tuple(KINDS))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from error


@click.command(short_help="Generate from an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@prompt_options
@click.option(
    "--spec",
    type=click.Choice(CHOICES),
    default=AUTO,
    show_default=True,
    help="Drafter; auto takes the best one the artifact holds.",
)
@click.option(
    "--spec-policy",
    callback=_read_policy,
    metavar="THRESHOLDS",
    help="Drafters by sequence length, such as mtp<4096<=dflash2<32768<=none.",
)
@click.option("--draft-tokens", type=click.IntRange(min=0), help="Tokens drafted in a round.  [default: the drafter's]")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Prompts of --prompts-file decoded side by side.",
)
@sampling_options
@stop_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with text, token ids and statistics.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Write a JSON line for each round: anchor, proposed, accepted."
)
@click.option("--no-verify", is_flag=True, help="Do not check the digests of the files that the run reads.")
@debug_option
def run(
    artifact: Path,
    prompts: PromptRequest,
    spec: str,
    spec_policy: tuple[Segment, ...] | None,
    draft_tokens: int | None,
    batch_size: int,
    sampling: SamplingRequest,
    stopping: StopRequest,
    as_json: bool,
    trace: Path | None,
    no_verify: bool,
) -> int:
    """Generate from ARTIFACT: greedy tokens, or with --temperature draws from the target's distribution.

    Neither depends on the drafter. Where the model's generation_config.json says to sample, its values are the
    defaults.

    With --prompts-file a JSON line is printed for every prompt, in order.

    Without an option that gives a prompt, it is read from standard input. Text streams to standard output, statistics
    go to standard error. Ctrl-C stops after the current round.

    The first run checks the digest of every file it reads, later ones read again only what looks changed.
    """
    prompts.check()
    if prompts.prompts_file is None and batch_size > 1:
        raise click.UsageError("--batch-size needs --prompts-file: there is one prompt")
    if prompts.prompts_file is not None and trace is not None:
        raise click.UsageError("--trace follows one prompt; leave it out or leave out --prompts-file")
    if prompts.prompts_file is not None and as_json:
        raise click.UsageError("--prompts-file prints a JSON line for each prompt by itself; leave out --json")
    if prompts.chat and as_json:
        raise click.UsageError("--chat gives text only; leave out --json")
    if spec_policy is not None and spec != AUTO:
        raise click.UsageError("--spec-policy chooses the drafters itself; leave out --spec")
    try:
        opened = open_artifact(artifact)
        check = skip_check if no_verify else check_on_load
        check(opened, text_files(opened))
        backend = choose_backend(opened)
        context = RunContext(backend)
        plan: Plan
        if spec_policy is not None:
            plan = resolve_thresholds(spec_policy, draft_tokens, opened.manifest, context)
        else:
            plan = resolve(SpeculationRequest(spec, draft_tokens), opened.manifest, context)
        codec = load_codec(opened)
        limits = read_limits(stopping, opened, codec)
        if prompts.prompts_file is not None:
            read = read_prompts_file(prompts.prompts_file, sampling, stopping, opened, codec)
            jobs = prepare_jobs(with_own_seeds(read, sampling.seed), read_defaults(opened), opened, codec)
            check(opened, decoder_files(opened, plan, backend, jobs[0].sampling))
            if batch_size == 1:
                return run_jobs(jobs, load_decoder(opened, plan, backend, sampling=jobs[0].sampling), plan, codec)
            if backend != ONNXRUNTIME:
                raise RunError(f"--batch-size {batch_size} runs on onnxruntime; engines of {backend} take one sequence")
            batch = load_batch(opened, plan, batch_size, sampling=jobs[0].sampling)
            return run_batch(jobs, batch, batch_size, plan, codec)
        drawn = resolve_sampling(sampling, read_defaults(opened), opened.manifest.model.candidate_vocab_size)
        check(opened, decoder_files(opened, plan, backend, drawn))
        if prompts.chat:
            begin = prepare_chat(prompts, stopping, opened, codec, limits)
            with TraceFile(trace) as tracer:
                converse(begin(load_decoder(opened, plan, backend, sampling=drawn)), tracer.write)
            return 0
        ids = read_prompt(prompts, opened, codec)
        check_room(len(ids), limits)
        decoder = load_decoder(opened, plan, backend, sampling=drawn)
        answer = AnswerText(codec.stream(), stopping.stop) if codec is not None else None

        def show(tokens: Sequence[int]) -> None:
            if answer is not None and not as_json:
                click.echo(answer.take(), nl=False)

        with TraceFile(trace) as tracer, Interrupt() as interrupt:
            generation = generate(
                decoder,
                ids,
                limits,
                watch=answer.add if answer is not None else lambda token: None,
                interrupted=interrupt.seen,
                on_tokens=show,
                on_round=tracer.write,
            )
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error
    rest = answer.finish() if answer is not None else ",".join(map(str, generation.token_ids))
    if as_json:
        click.echo(json.dumps(report(generation, plan, drawn, answer)))
    else:
        click.echo(rest)
        _print_statistics(generation, plan, drawn)
    return INTERRUPTED if generation.finish_reason == "interrupted" else 0


def _print_statistics(generation: Generation, plan: Plan, sampling: Sampling | None) -> None:
    stats = generation.statistics
    lines = [
        f"{len(generation.token_ids)} tokens ({generation.finish_reason}), {stats.tokens_per_second:.0f} tokens/s,"
        f" prefill {stats.prefill_seconds * 1e3:.1f} ms, decode {stats.decode_seconds * 1e3:.1f} ms",
        f"{describe(sampling)}; speculation {plan.speculation}, {plan.draft_tokens} draft tokens ({plan.reason})",
    ]
    if stats.drafted_tokens:
        per_position = " ".join(f"{count / stats.rounds:.0%}" for count in stats.accepted_per_position)
        lines.append(
            f"{stats.rounds} rounds, {stats.tokens_per_round:.2f} tokens a round, {stats.accepted_tokens} of"
            f" {stats.drafted_tokens} drafts accepted ({stats.acceptance_rate:.0%}); by position {per_position}"
        )
    for line in lines:
        click.echo(line, err=True)
