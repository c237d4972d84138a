"""The workload, and what a contender's repetitions come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from worker import Decoded, Worker


@dataclass(frozen=True)
class Case:
    """One prompt and the tokens greedy decoding must give."""

    prompt_ids: tuple[int, ...]
    greedy_ids: tuple[int, ...]


def load_cases(path: Path) -> list[Case]:
    """Read the golden runs."""
    runs = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return [Case(tuple(run["prompt_ids"]), tuple(run["greedy_ids"])) for run in runs]


@dataclass
class Measurement:
    """All repetitions of one contender over all cases."""

    cases: Sequence[Case]
    new_tokens: int
    repetitions: list[list[Decoded]] = field(default_factory=list)

    def warm_up(self, worker: Worker) -> None:
        """Decode the longest prompt, so that memory has grown and pages are in before anything is timed."""
        worker.decode(max(self.cases, key=lambda case: len(case.prompt_ids)).prompt_ids, self.new_tokens)

    def repeat(self, worker: Worker) -> None:
        """Decode every case once."""
        self.repetitions.append([worker.decode(case.prompt_ids, self.new_tokens) for case in self.cases])

    @property
    def decode_rates(self) -> list[float]:
        """New tokens after each prompt's first, a second, in each repetition."""
        tokens = len(self.cases) * (self.new_tokens - 1)
        return [tokens / sum(decoded.decode_seconds for decoded in repetition) for repetition in self.repetitions]

    @property
    def prefill_rates(self) -> list[float]:
        """Prompt tokens a second in each repetition."""
        tokens = sum(len(case.prompt_ids) for case in self.cases)
        return [tokens / sum(decoded.prefill_seconds for decoded in repetition) for repetition in self.repetitions]

    @property
    def tokens_per_second(self) -> float:
        """The median repetition's decoding rate."""
        return median(self.decode_rates)

    @property
    def best_tokens_per_second(self) -> float:
        """The decoding rate made of each case's fastest repetition: what a short disturbance leaves alone."""
        times = [[decoded.decode_seconds for decoded in repetition] for repetition in self.repetitions]
        best: float = sum(min(of_case) for of_case in zip(*times, strict=True))
        return len(self.cases) * (self.new_tokens - 1) / best

    @property
    def tokens_per_round(self) -> float:
        """New tokens a call of the target; a round cut off at the last token counts whole."""
        rounds = sum(decoded.rounds for decoded in self.repetitions[0])
        return len(self.cases) * (self.new_tokens - 1) / rounds

    @property
    def equal_outputs(self) -> int:
        """How many cases had the right tokens in every repetition."""
        return sum(
            all(
                tuple(repetition[index].token_ids) == case.greedy_ids[: self.new_tokens]
                for repetition in self.repetitions
            )
            for index, case in enumerate(self.cases)
        )
