"""Measure an artifact: rates, acceptance and the time of a round, for each way to decode and each context length."""

from __future__ import annotations

import functools
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dfc.artifacts import Artifact, Stage
from dfc.runtime.decode import Decoder, PlainDecoder, SpeculativeDecoder
from dfc.runtime.engine import Buffer, Call, Copy, Engine
from dfc.runtime.engines import open_engines
from dfc.runtime.plan import SpeculationPlan
from dfc.runtime.target import AdvancingTarget, VerifyingTarget


@dataclass(frozen=True)
class Spread:
    """Median, least and most of the repetitions."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Measured:
    """One way to decode at one context length; rates in tokens a second, times in milliseconds of one round.

    ``context`` is the prompt's length, 0 for prompts as they are. ``accepted_lengths[k]`` counts the rounds that
    accepted k drafts; ``acceptance_by_position[i]`` is the share of rounds whose draft i + 1 held. ``verify_ms`` is the
    target's call, also in plain decoding.
    """

    speculation: str
    draft_tokens: int
    context: int
    prefill: Spread
    decode: Spread
    draft_ms: float
    verify_ms: float
    host_ms: float
    rounds: int
    tokens_per_round: float
    accepted_per_round: float
    accepted_lengths: tuple[int, ...]
    acceptance_by_position: tuple[float, ...]

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return way_name(self.speculation, self.draft_tokens)


class _TimedCall:
    def __init__(self, call: Call, spent: list[float]) -> None:
        self._call = call
        self._spent = spent

    def run(self, end: int) -> None:
        began = time.perf_counter()
        self._call.run(end)
        self._spent[0] += time.perf_counter() - began


class _TimedEngine:
    """An engine that adds up the seconds of its calls; exact where a call returns when it is done."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.spent = [0.0]

    @property
    def stage(self) -> Stage:
        return self._engine.stage

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        return self._engine.prepared_rows

    def fit(self, **sizes: int) -> dict[str, int]:
        return self._engine.fit(**sizes)

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self._engine.allocate(dtype, shape)

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self._engine.share(dtype, shape)

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        return _TimedCall(self._engine.bind(buffers, copies), self.spent)


@dataclass
class _Record:
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    round_seconds: list[float] = field(default_factory=list)
    draft_seconds: list[float] = field(default_factory=list)
    verify_seconds: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Contender:
    plan: SpeculationPlan
    decoder: Decoder
    target: _TimedEngine
    drafter: _TimedEngine | None


def measure(
    artifact: Artifact,
    backend: str,
    plans: Sequence[SpeculationPlan],
    prompts: Mapping[int, Sequence[Sequence[int]]],
    new_tokens: int,
    repetitions: int,
    progress: Callable[[int, int], None],
) -> list[Measured]:
    """Decode `new_tokens` after each prompt, by context length, in each way; repetitions are interleaved.

    `progress` gets the repetitions done and their number.

    Raises:
        RunError: an engine cannot be loaded.
    """
    open_stage = functools.cache(open_engines(artifact, backend))
    contenders = [_open(plan, open_stage) for plan in plans]
    records = {(index, context): _Record() for context in prompts for index in range(len(contenders))}
    for repetition in range(repetitions):
        for context, texts in prompts.items():
            for index, contender in enumerate(contenders):
                _decode(contender, texts, new_tokens, records[index, context])
        progress(repetition + 1, repetitions)
    return [_summarize(contenders[index].plan, context, record) for (index, context), record in records.items()]


def peak_memory() -> int:
    """Return the most bytes of memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open(plan: SpeculationPlan, open_stage: Callable[[str], Engine]) -> _Contender:
    engine = _TimedEngine(open_stage(plan.target_stage))
    if plan.drafter is None:
        plain = PlainDecoder(AdvancingTarget(engine))
        plain.warm_up()
        return _Contender(plan, plain, engine, None)
    draft = _TimedEngine(open_stage(plan.draft_stage))
    decoder = SpeculativeDecoder(VerifyingTarget(engine), plan.drafter.open(draft, plan.draft_tokens))
    decoder.warm_up()
    return _Contender(plan, decoder, engine, draft)


def _decode(contender: _Contender, texts: Sequence[Sequence[int]], new_tokens: int, record: _Record) -> None:
    prefill_seconds = decode_seconds = 0.0
    prefilled = decoded = 0
    for text in texts:
        # Another prompt in between: nothing of the last repetition is in the states.
        contender.decoder.start([text[0] ^ 1])
        began = time.perf_counter()
        contender.decoder.start(text)
        prefill_seconds += time.perf_counter() - began
        prefilled += len(text) - contender.decoder.reused
        count = 1
        while count < new_tokens:
            target, drafter = contender.target.spent[0], contender.drafter.spent[0] if contender.drafter else 0.0
            began = time.perf_counter()
            finished = contender.decoder.step()
            seconds = time.perf_counter() - began
            decode_seconds += seconds
            record.round_seconds.append(seconds)
            record.verify_seconds.append(contender.target.spent[0] - target)
            record.draft_seconds.append(contender.drafter.spent[0] - drafter if contender.drafter else 0.0)
            record.lengths.append(finished.accepted)
            count += len(finished.tokens)
        decoded += count - 1
    record.prefill.append(prefilled / prefill_seconds)
    record.decode.append(decoded / decode_seconds)


def _summarize(plan: SpeculationPlan, context: int, record: _Record) -> Measured:
    rounds = len(record.lengths)
    draft, verify = statistics.median(record.draft_seconds), statistics.median(record.verify_seconds)
    host = statistics.median(
        whole - drafting - verifying
        for whole, drafting, verifying in zip(
            record.round_seconds, record.draft_seconds, record.verify_seconds, strict=True
        )
    )
    positions = range(1, plan.draft_tokens + 1)
    return Measured(
        speculation=plan.speculation,
        draft_tokens=plan.draft_tokens,
        context=context,
        prefill=spread(record.prefill),
        decode=spread(record.decode),
        draft_ms=draft * 1e3,
        verify_ms=verify * 1e3,
        host_ms=host * 1e3,
        rounds=rounds,
        tokens_per_round=1 + sum(record.lengths) / rounds,
        accepted_per_round=sum(record.lengths) / rounds,
        accepted_lengths=tuple(record.lengths.count(length) for length in range(plan.draft_tokens + 1)),
        acceptance_by_position=tuple(
            sum(length >= position for length in record.lengths) / rounds for position in positions
        ),
    )


def way_name(speculation: str, draft_tokens: int) -> str:
    """Return what tables and figures call a way to decode."""
    return f"{speculation} {draft_tokens}" if draft_tokens else "plain"


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and most of some values."""
    return Spread(statistics.median(values), min(values), max(values))
