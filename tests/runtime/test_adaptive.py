"""The adaptive policy against simulated drafters, whose true acceptance the policy is not told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from dfc.runtime.adaptive import AdaptivePolicy, AdaptiveRule, Measurements, RoundTimes, expected_tokens
from dfc.runtime.policy import Choice

PLAIN = 1.0
GOOD, BAD = 0.9, 0.0
LENGTHS = {"mtp": 3, "dflash2": 7}


def measurements(mtp: float = 0.6, dflash2: float = 0.6, plain: float = PLAIN) -> Measurements:
    """Costs as on a processor: a draft of MTP costs each time, a block of DFlash2 about the same at any length."""
    times = {("none", 0): ((0, plain), (4096, 2 * plain))}
    times |= {("mtp", count): ((0, 1.1 + 0.25 * count),) for count in range(1, 4)}
    times |= {("dflash2", count): ((0, 1.8 + 0.1 * count),) for count in range(1, 8)}
    return Measurements(RoundTimes(times), {"mtp": (mtp,) * 3, "dflash2": (dflash2,) * 7})


class Simulation:
    """Plays a policy's rounds: `truth` gives the acceptance of a drafter after a number of tokens."""

    def __init__(self, measured: Measurements, truth: Callable[[str, int], float], seed: int = 0) -> None:
        self.policy = AdaptivePolicy(measured)
        self.chosen: list[Choice] = []
        self.seconds = 0.0
        self.tokens = 0
        self._times, self._truth, self._random = measured.times, truth, random.Random(seed)
        self._last: Choice | None = None

    def run(self, tokens: int) -> float:
        """Decode so many tokens and return the tokens a second over them."""
        began, first = self.seconds, self.tokens
        while self.tokens < first + tokens:
            choice = self._last = self.policy.choose(self.tokens, self._last)
            truth, accepted = self._truth(choice.drafter, self.tokens), 0
            while accepted < choice.draft_tokens and self._random.random() < truth:
                accepted += 1
            self.chosen.append(choice)
            self.seconds += self._times.seconds(choice.drafter, choice.draft_tokens, self.tokens)
            self.tokens += accepted + 1
            self.policy.observe(choice, accepted)
        return (self.tokens - first) / (self.seconds - began)


def best_rate(measured: Measurements, truth: dict[str, float]) -> float:
    rates = [1 / measured.times.seconds("none", 0, 0)]
    for name, most in LENGTHS.items():
        for count in range(1, most + 1):
            tokens = expected_tokens((truth[name],) * count, count)
            rates.append(tokens / measured.times.seconds(name, count, 0))
    return max(rates)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "truth", [{"mtp": GOOD, "dflash2": BAD}, {"mtp": BAD, "dflash2": GOOD}, {"mtp": BAD, "dflash2": BAD}]
)
def test_it_finds_the_best_choice_whatever_was_measured(truth: dict[str, float], seed: int) -> None:
    measured = measurements()
    flat = Measurements(
        RoundTimes({key: (points[0],) for key, points in measured.times.points.items()}), measured.acceptance
    )
    simulation = Simulation(flat, lambda drafter, tokens: truth.get(drafter, 0.0), seed)
    simulation.run(500)
    assert simulation.run(3000) > 0.92 * best_rate(flat, truth)


@pytest.mark.parametrize("seed", range(5))
def test_useless_drafters_cost_little_after_the_first_tokens(seed: int) -> None:
    measured = Measurements(
        RoundTimes({key: (points[0],) for key, points in measurements().times.points.items()}),
        {"mtp": (0.8,) * 3, "dflash2": (0.8,) * 7},
    )
    simulation = Simulation(measured, lambda drafter, tokens: BAD, seed)
    simulation.run(64)
    assert simulation.run(400) > 0.95 / PLAIN
    assert simulation.run(4000) > 0.97 / PLAIN


@pytest.mark.parametrize("seed", range(5))
def test_it_comes_back_when_acceptance_returns(seed: int) -> None:
    def truth(drafter: str, tokens: int) -> float:
        return BAD if tokens < 600 or drafter == "mtp" else 0.95

    simulation = Simulation(measurements(mtp=0.5), truth, seed)
    simulation.run(600)
    before = Counter(choice.drafter for choice in simulation.chosen[-100:])
    assert before["none"] > 85
    simulation.run(600)
    after = Counter(choice.drafter for choice in simulation.chosen[-30:])
    assert after["dflash2"] > 20


def test_a_reset_forgets_what_was_seen() -> None:
    policy = AdaptivePolicy(measurements(dflash2=0.9))
    first = policy.choose(10, None)
    assert first.drafter == "dflash2"
    choice = first
    for _ in range(60):
        policy.observe(choice, 0)
        choice = policy.choose(10, choice)
    assert choice.drafter != "dflash2"
    policy.reset()
    assert policy.choose(10, None) == first


def test_times_are_interpolated_and_never_made_up() -> None:
    times = RoundTimes({("none", 0): ((100, 1.0), (300, 2.0))})
    found = [times.seconds("none", 0, length) for length in (0, 100, 200, 300, 9999)]
    assert found == [1.0, 1.0, 1.5, 2.0, 2.0]


def test_costs_by_length_change_the_choice() -> None:
    rule = AdaptiveRule(measurements(mtp=0.5, dflash2=0.5, plain=0.6))
    rows = rule.describe()
    assert [(row["drafter"], row["below"]) for row in rows] == [("none", 4096), ("mtp", None)]
    policy = rule.begin()
    assert policy.choose(0, None).drafter == "none"
    assert policy.choose(5000, None).drafter == "mtp"


def test_the_reason_names_the_choice() -> None:
    simulation = Simulation(measurements(), lambda drafter, tokens: BAD)
    simulation.run(300)
    looked = [choice for choice in simulation.chosen if choice.reason.startswith("to see")]
    assert 0 < len(looked) < 20
    assert all("expected to be fastest" in choice.reason for choice in simulation.chosen if choice not in looked)
