"""Measure an artifact with several sequences in every call, as `dfc run --batch-size` decodes them."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dfc.artifacts import Artifact
from dfc.runtime.batch import Batch
from dfc.runtime.benchmark import Spread, spread, way_name
from dfc.runtime.load import load_batch
from dfc.runtime.plan import SpeculationPlan


@dataclass(frozen=True)
class MeasuredBatch:
    """One way to decode with `batch_size` sequences side by side.

    ``decode`` is in tokens a second of all sequences together, ``round_ms`` the median time of a round of all, and the
    other figures are those of one sequence in a round: its tokens with the target's own, and its accepted drafts.
    """

    speculation: str
    draft_tokens: int
    batch_size: int
    decode: Spread
    round_ms: float
    tokens_per_round: float
    accepted_per_round: float

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return way_name(self.speculation, self.draft_tokens)


def measure_batches(
    artifact: Artifact,
    plans: Sequence[SpeculationPlan],
    prompts: Sequence[Sequence[int]],
    sizes: Sequence[int],
    new_tokens: int,
    repetitions: int,
    progress: Callable[[int, int], None],
) -> list[MeasuredBatch]:
    """Decode with every place of the batch taken, prompts in turn, until a sequence has `new_tokens`.

    `progress` gets the ways and sizes done and their number. The first round of each sequence, which it does alone, is
    not measured.

    Raises:
        RunError: an engine cannot be loaded.
    """
    measured = []
    ways = list(itertools.product(sizes, plans))
    for done, (size, plan) in enumerate(ways, start=1):
        batch = load_batch(artifact, plan, size)
        measured.append(_measure(batch, plan, prompts, size, new_tokens, repetitions))
        progress(done, len(ways))
    return measured


def _measure(
    batch: Batch,
    plan: SpeculationPlan,
    prompts: Sequence[Sequence[int]],
    size: int,
    new_tokens: int,
    repetitions: int,
) -> MeasuredBatch:
    rates, rounds, lengths = [], [], []
    texts = itertools.cycle(prompts)
    for _ in range(repetitions):
        counts = {}
        for place in range(size):
            batch.start(next(texts), None)
            counts[place] = 1 + len(batch.join(place, None).tokens)
        seconds, tokens = 0.0, 0
        # At least one round of all, whatever the first ones gave.
        while not seconds or max(counts.values()) < new_tokens:
            began = time.perf_counter()
            finished = batch.step()
            rounds.append(time.perf_counter() - began)
            seconds += rounds[-1]
            for place, one in finished.items():
                counts[place] += len(one.tokens)
                tokens += len(one.tokens)
                lengths.append(one.accepted)
        for place in range(size):
            batch.leave(place)
        rates.append(tokens / seconds)
    accepted = sum(lengths) / len(lengths)
    return MeasuredBatch(
        speculation=plan.speculation,
        draft_tokens=plan.draft_tokens,
        batch_size=size,
        decode=spread(rates),
        round_ms=statistics.median(rounds) * 1e3,
        tokens_per_round=1 + accepted,
        accepted_per_round=accepted,
    )
