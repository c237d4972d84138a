"""How a generation went, in the numbers the field compares."""

from __future__ import annotations

from dataclasses import dataclass, field

from dfc.runtime.decode import Round


@dataclass(frozen=True)
class Statistics:
    """Counts and times of one generation.

    ``tokens_per_round`` counts the token that the target adds itself (accepted + 1); ``acceptance_rate`` is accepted
    over drafted; ``accepted_per_position[i]`` is the number of rounds whose draft i + 1 held. ``tokens_per_second`` is
    over the decoding time, for the tokens after the first (which the prompt's pass gives). Times are in seconds.
    ``reused_tokens`` of the ``prompt_tokens`` were in the states already, from a generation before.
    """

    prompt_tokens: int
    reused_tokens: int
    rounds: int
    drafted_tokens: int
    accepted_tokens: int
    tokens_per_round: float
    acceptance_rate: float
    accepted_per_position: tuple[int, ...]
    prefill_seconds: float
    decode_seconds: float
    tokens_per_second: float


@dataclass
class StatisticsRecorder:
    """Collects rounds while they happen."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    rounds: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    accepted_per_position: list[int] = field(default_factory=list)

    def add(self, finished: Round) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafted_tokens += len(finished.proposed)
        self.accepted_tokens += finished.accepted
        missing = len(finished.proposed) - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position in range(finished.accepted):
            self.accepted_per_position[position] += 1

    def finish(self, token_count: int) -> Statistics:
        """Return the numbers for a generation of `token_count` tokens."""
        return Statistics(
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_tokens,
            rounds=self.rounds,
            drafted_tokens=self.drafted_tokens,
            accepted_tokens=self.accepted_tokens,
            tokens_per_round=_ratio(self.accepted_tokens + self.rounds, self.rounds),
            acceptance_rate=_ratio(self.accepted_tokens, self.drafted_tokens),
            accepted_per_position=tuple(self.accepted_per_position),
            prefill_seconds=self.prefill_seconds,
            decode_seconds=self.decode_seconds,
            tokens_per_second=_ratio(token_count - 1, self.decode_seconds),
        )


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
