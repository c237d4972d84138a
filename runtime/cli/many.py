"""`dfc run --prompts-file`: many prompts through one loaded decoder, a JSON line for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import click

from dfc.artifacts import Artifact
from dfc.runtime.cli.interrupt import INTERRUPTED, Interrupt
from dfc.runtime.cli.prompts_file import FilePrompt
from dfc.runtime.cli.report import report
from dfc.runtime.cli.sampling import resolve_sampling
from dfc.runtime.cli.stopping import read_limits
from dfc.runtime.decode import Decoder, Round
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Generation, Limits, check_room, generate
from dfc.runtime.generation_config import SamplingDefaults
from dfc.runtime.plan import Plan
from dfc.runtime.sampling import LIKELIEST, Sampling
from dfc.runtime.stops import AnswerText
from dfc.runtime.text import TextCodec


class Job:
    """One prompt, checked: what to decode, how to draw, and when to end."""

    def __init__(self, prompt: FilePrompt, defaults: SamplingDefaults, artifact: Artifact, codec: TextCodec | None):
        try:
            self.limits: Limits = read_limits(prompt.stopping, artifact, codec)
            self.sampling: Sampling | None = resolve_sampling(prompt.sampling, defaults)
            check_room(len(prompt.ids), self.limits)
        except (RunError, click.UsageError) as error:
            message = error.format_message() if isinstance(error, click.UsageError) else str(error)
            raise RunError(f"{prompt.place}: {message}") from error
        self.ids = prompt.ids
        self.stop = prompt.stopping.stop


def prepare_jobs(
    prompts: Sequence[FilePrompt], defaults: SamplingDefaults, artifact: Artifact, codec: TextCodec | None
) -> list[Job]:
    """Check every prompt against the artifact, before anything is loaded.

    Where no seed is given for a sampled prompt, or one for all, each line draws with a seed of its own.

    Raises:
        RunError: a prompt or an option of it cannot be used; names file and line.
    """
    jobs = [Job(prompt, defaults, artifact, codec) for prompt in prompts]
    if any(job.sampling is not None for job in jobs):
        for job in jobs:
            job.sampling = job.sampling or LIKELIEST
    return jobs


def run_jobs(
    jobs: Sequence[Job], decoder: Decoder, plan: Plan, codec: TextCodec | None, on_round: Callable[[Round], None]
) -> int:
    """Decode one prompt after the other and print a line for each; return the exit code."""
    began = time.perf_counter()
    tokens = 0
    with Interrupt() as interrupt:
        for index, job in enumerate(jobs):
            answer = AnswerText(codec.stream(), job.stop) if codec is not None else None
            if job.sampling is not None:
                decoder.sample_as(job.sampling)
            generation = generate(
                decoder,
                job.ids,
                job.limits,
                watch=answer.add if answer is not None else lambda token: None,
                interrupted=interrupt.seen,
                on_round=on_round,
            )
            if answer is not None:
                answer.finish()
            _print(index, job, generation, plan, answer)
            tokens += len(generation.token_ids)
            if generation.finish_reason == "interrupted":
                return INTERRUPTED
    seconds = time.perf_counter() - began
    click.echo(
        f"{len(jobs)} prompts, {tokens} tokens, {tokens / seconds:.0f} tokens/s; speculation {plan.speculation},"
        f" {plan.draft_tokens} draft tokens ({plan.reason})",
        err=True,
    )
    return 0


def _print(index: int, job: Job, generation: Generation, plan: Plan, answer: AnswerText | None) -> None:
    sampling = None if job.sampling == LIKELIEST else job.sampling
    click.echo(json.dumps({"index": index, **report(generation, plan, sampling, answer)}))


def with_own_seeds(prompts: Sequence[FilePrompt], seed: int | None) -> list[FilePrompt]:
    """Give every line that takes the command line's seed one of its own: the same prompt twice is drawn twice."""
    if seed is None:
        return list(prompts)
    return [
        replace(prompt, sampling=replace(prompt.sampling, seed=seed + index))
        if prompt.sampling.seed == seed
        else prompt
        for index, prompt in enumerate(prompts)
    ]
