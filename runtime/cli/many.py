"""`dfc run --prompts-file`: many prompts through one loaded decoder, a JSON line for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from dfc.artifacts import Artifact
from dfc.runtime.batch import Batch
from dfc.runtime.cli.interrupt import INTERRUPTED, Interrupt
from dfc.runtime.cli.prompts_file import FilePrompt
from dfc.runtime.cli.report import report
from dfc.runtime.cli.sampling import resolve_sampling
from dfc.runtime.cli.stopping import read_limits
from dfc.runtime.decode import Decoder, Round
from dfc.runtime.errors import RunError
from dfc.runtime.generate import Answer, Generation, Limits, check_room, generate
from dfc.runtime.generation_config import SamplingDefaults
from dfc.runtime.plan import Plan
from dfc.runtime.sampling import LIKELIEST, Sampling
from dfc.runtime.statistics import StatisticsRecorder
from dfc.runtime.stops import AnswerText
from dfc.runtime.text import TextCodec


class Job:
    """One prompt, checked: what to decode, how to draw, and when to end."""

    def __init__(self, prompt: FilePrompt, defaults: SamplingDefaults, artifact: Artifact, codec: TextCodec | None):
        try:
            self.limits: Limits = read_limits(prompt.stopping, artifact, codec)
            vocab_size = artifact.manifest.model.candidate_vocab_size
            self.sampling: Sampling | None = resolve_sampling(prompt.sampling, defaults, vocab_size)
            check_room(len(prompt.ids), self.limits)
        except (RunError, click.UsageError) as error:
            message = error.format_message() if isinstance(error, click.UsageError) else str(error)
            raise RunError(f"{prompt.place}: {message}") from error
        self.ids = prompt.ids
        self._stop = prompt.stopping.stop

    def text(self, codec: TextCodec | None) -> AnswerText | None:
        """Return what collects the answer's text; None without a tokenizer."""
        return AnswerText(codec.stream(), self._stop) if codec is not None else None


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


class Output:
    """Prints a line for every answer, in the order of the prompts whatever the order in which they end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._waiting: dict[int, str] = {}
        self._printed = 0
        self._tokens = 0
        self._began = time.perf_counter()

    def add(self, index: int, job: Job, generation: Generation, answer: AnswerText | None) -> None:
        """Take in one answer."""
        if answer is not None:
            answer.finish()
        sampling = None if job.sampling == LIKELIEST else job.sampling
        self._tokens += len(generation.token_ids)
        self._waiting[index] = json.dumps({"index": index, **report(generation, self._plan, sampling, answer)})
        while self._printed in self._waiting:
            click.echo(self._waiting.pop(self._printed))
            self._printed += 1

    def finish(self) -> None:
        """Print what waits for answers that will not come, and the statistics."""
        for index in sorted(self._waiting):
            click.echo(self._waiting[index])
        seconds = time.perf_counter() - self._began
        prompts = self._printed + len(self._waiting)
        plan = self._plan
        click.echo(
            f"{prompts} prompts, {self._tokens} tokens, {self._tokens / seconds:.0f} tokens/s; speculation"
            f" {plan.speculation}, {plan.draft_tokens} draft tokens ({plan.reason})",
            err=True,
        )


def run_jobs(jobs: Sequence[Job], decoder: Decoder, plan: Plan, codec: TextCodec | None) -> int:
    """Decode one prompt after the other; return the exit code."""
    output = Output(plan)
    with Interrupt() as interrupt:
        for index, job in enumerate(jobs):
            text = job.text(codec)
            if job.sampling is not None:
                decoder.sample_as(job.sampling)
            generation = generate(decoder, job.ids, job.limits, watch=_watch(text), interrupted=interrupt.seen)
            output.add(index, job, generation, text)
            if interrupt.seen():
                break
    output.finish()
    return INTERRUPTED if interrupt.seen() else 0


@dataclass
class _Place:
    """An answer that a place of the batch is busy with."""

    index: int
    job: Job
    text: AnswerText | None
    answer: Answer
    recorder: StatisticsRecorder
    began: float

    def take(self, finished: Round) -> None:
        self.recorder.add(finished)
        self.answer.take(finished.tokens)

    def finish(self, output: Output) -> None:
        self.recorder.decode_seconds = time.perf_counter() - self.began
        output.add(self.index, self.job, self.answer.finish(self.recorder), self.text)


def run_batch(jobs: Sequence[Job], batch: Batch, size: int, plan: Plan, codec: TextCodec | None) -> int:
    """Decode `size` prompts side by side, the next one in the place of one that ends; return the exit code."""
    output = Output(plan)
    waiting = iter(enumerate(jobs))
    busy: dict[int, _Place] = {}
    with Interrupt() as interrupt:
        while not interrupt.seen():
            for place in sorted(set(range(size)) - set(busy)):
                begun = _begin(waiting, batch, place, codec, output)
                if begun is None:
                    break
                busy[place] = begun
            if not busy:
                break
            for place, finished in batch.step().items():
                busy[place].take(finished)
                if busy[place].answer.finish_reason is not None:
                    batch.leave(place)
                    busy.pop(place).finish(output)
        for left in busy.values():
            left.answer.finish_reason = "interrupted"
            left.finish(output)
    output.finish()
    return INTERRUPTED if interrupt.seen() else 0


def _begin(
    waiting: Iterator[tuple[int, Job]], batch: Batch, place: int, codec: TextCodec | None, output: Output
) -> _Place | None:
    """Take in prompts until one's answer does not end with its first round; None where there are no more."""
    for index, job in waiting:
        text = job.text(codec)
        recorder = StatisticsRecorder(prompt_tokens=len(job.ids))
        began = time.perf_counter()
        first = batch.start(job.ids, job.sampling)
        recorder.prefill_seconds = time.perf_counter() - began
        taken = _Place(index, job, text, Answer(len(job.ids), job.limits, _watch(text)), recorder, time.perf_counter())
        taken.answer.take((first,))
        if taken.answer.finish_reason is None:
            taken.take(batch.join(place, job.sampling))
            if taken.answer.finish_reason is None:
                return taken
            batch.leave(place)
        taken.finish(output)
    return None


def _watch(text: AnswerText | None) -> Callable[[int], str | None]:
    return text.add if text is not None else lambda token: None


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
