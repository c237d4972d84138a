"""Switching between drafters never changes a token, and calls no drafter that is not chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.artifacts import Artifact
from dfc.runtime.adaptive import AdaptivePolicy, Measurements, RoundTimes
from dfc.runtime.drafters import KINDS
from dfc.runtime.drafters.kind import Drafter
from dfc.runtime.engine import Buffer
from dfc.runtime.engines import open_engines
from dfc.runtime.plan import RunContext, resolve_thresholds
from dfc.runtime.policy import Choice, LengthThresholds, Policy, Segment, parse_segments
from dfc.runtime.switching import SwitchingDecoder
from dfc.runtime.target import Block, VerifyingTarget
from tests.end_to_end.decoding import decode_with, new_tokens

MTP_MOST, DFLASH2_MOST = 3, 7
CHOICES = [("none", 0)]
CHOICES += [("mtp", count) for count in range(1, MTP_MOST + 1)]
CHOICES += [("dflash2", count) for count in range(1, DFLASH2_MOST + 1)]
NEW_TOKENS = 24


@dataclass
class Scripted:
    """Plays choices in turn, over and over."""

    script: list[tuple[str, int]]
    played: int = 0

    def choose(self, length: int, previous: Choice | None) -> Choice:
        drafter, draft_tokens = self.script[self.played % len(self.script)]
        self.played += 1
        return Choice(drafter, draft_tokens, "scripted")

    def possible(self, length: int) -> frozenset[str]:
        return frozenset(("mtp", "dflash2"))

    def observe(self, choice: Choice, accepted: int) -> None:
        assert 0 <= accepted <= choice.draft_tokens

    def reset(self) -> None:
        pass


@dataclass
class Counting:
    """A drafter that notes its calls."""

    drafter: Drafter
    calls: list[int] = field(default_factory=list)
    draft_tokens: int = 0

    def reset(self) -> None:
        self.drafter.reset()

    def rewind(self, length: int) -> None:
        self.drafter.rewind(length)

    def follow(self, block: Block) -> None:
        self.calls.append(block.count)
        self.drafter.follow(block)

    def draft(self, block: Block) -> Buffer:
        self.calls.append(block.count)
        self.drafter.draft_tokens = self.draft_tokens
        return self.drafter.draft(block)


Open = Callable[..., tuple[SwitchingDecoder, dict[str, Counting]]]


@pytest.fixture(scope="module")
def switching(reference_artifact: Artifact) -> Open:
    """Make a decoder with both drafters on engines that are loaded once."""
    open_stage = open_engines(reference_artifact, "onnxruntime")
    verify = open_stage("target_verify")
    engines = {"mtp": open_stage(f"draft_mtp_{MTP_MOST}"), "dflash2": open_stage("draft_dflash2")}

    def make(policy: Policy, prefill_rows: int = 16) -> tuple[SwitchingDecoder, dict[str, Counting]]:
        drafters = {
            "mtp": Counting(KINDS["mtp"].open(engines["mtp"], MTP_MOST)),
            "dflash2": Counting(KINDS["dflash2"].open(engines["dflash2"], DFLASH2_MOST)),
        }
        return SwitchingDecoder(VerifyingTarget(verify), drafters, policy, prefill_rows), drafters

    return make


@pytest.mark.parametrize("boundary", range(1, 8))
@pytest.mark.parametrize(
    "first, second", [("mtp", "dflash2"), ("dflash2", "mtp"), ("none", "dflash2"), ("none", "mtp")]
)
def test_a_switch_drafts_what_the_drafter_drafts_when_it_was_never_left(
    switching: Open, reference_runs: list[dict[str, Any]], boundary: int, first: str, second: str
) -> None:
    case = reference_runs[0]
    most = {"mtp": MTP_MOST, "dflash2": DFLASH2_MOST, "none": 0}
    script = [(first, most[first])] * boundary + [(second, most[second])] * 100
    decoded = decode_with(switching(Scripted(script))[0], case["prompt_ids"], 60)
    assert decoded.token_ids == case["greedy_ids"][:60]
    # Where a round begins at the same anchor with the same tokens before, an intact state gives the same drafts.
    golden = {"mtp": "mtp3_rounds", "dflash2": "dflash2_rounds"}[second]
    expected = dict(_by_length(case[golden]))
    compared = [
        (expected[length], entry) for length, entry in _by_length(decoded.rounds)[boundary:] if length in expected
    ]
    assert compared, "no round begins where a golden one does: choose another case"
    for golden_round, entry in compared:
        assert entry == golden_round


def _by_length(rounds: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    length, placed = 0, []
    for entry in rounds:
        placed.append((length, entry))
        length += 1 + entry["accepted"]
    return placed


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.sampled_from(CHOICES), min_size=1, max_size=12), case=st.integers(0, 2))
def test_any_policy_gives_the_greedy_tokens(
    switching: Open, reference_runs: list[dict[str, Any]], script: list[tuple[str, int]], case: int
) -> None:
    run = reference_runs[case]
    decoder, _ = switching(Scripted(script))
    assert decode_with(decoder, run["prompt_ids"], NEW_TOKENS).token_ids == run["greedy_ids"][:NEW_TOKENS]
    # Another turn, which begins with this one, and one that goes back: the same as from nothing.
    longer = [*run["prompt_ids"], *run["greedy_ids"][: NEW_TOKENS - 3], 65]
    for prompt in (longer, longer[:-6]):
        fresh, _ = switching(Scripted([("none", 0)]))
        assert new_tokens(decoder, prompt, 12) == new_tokens(fresh, prompt, 12)


@pytest.mark.parametrize("second", ["mtp", "none"])
def test_a_drafter_that_is_left_is_not_called(
    switching: Open, reference_runs: list[dict[str, Any]], second: str
) -> None:
    run = reference_runs[0]
    threshold = len(run["prompt_ids"]) + 10
    policy = LengthThresholds((Segment("dflash2", threshold), Segment(second, None)), {"dflash2": 7, "mtp": 3})
    decoder, drafters = switching(policy)
    decoder.start(run["prompt_ids"])
    length, after = len(run["prompt_ids"]), 0
    while length < len(run["prompt_ids"]) + 60:
        calls = len(drafters["dflash2"].calls)
        finished = decoder.step()
        assert finished.drafter == ("dflash2" if length < threshold else second)
        called = len(drafters["dflash2"].calls) - calls
        assert called == (1 if length < threshold else 0)
        after += length >= threshold
        length += 1 + finished.accepted
    assert after > 5


def test_a_switch_catches_up_in_one_call(switching: Open, reference_runs: list[dict[str, Any]]) -> None:
    run = reference_runs[0]
    decoder, drafters = switching(Scripted([("none", 0)] * 9 + [("dflash2", 7)]), prefill_rows=64)
    decoder.start(run["prompt_ids"])
    before = list(drafters["dflash2"].calls)
    for _ in range(10):
        decoder.step()
    # The rows of the prompt's last chunk and of nine rounds.
    assert len(drafters["dflash2"].calls) == len(before) + 1
    assert drafters["dflash2"].calls[-1] == len(run["prompt_ids"]) - sum(before) + 9


def test_a_drafter_that_was_dropped_comes_back_for_a_shorter_prompt(
    switching: Open, reference_runs: list[dict[str, Any]]
) -> None:
    prompt = reference_runs[0]["prompt_ids"]
    policy = LengthThresholds((Segment("dflash2", len(prompt) + 4), Segment("none", None)), {"dflash2": 7})
    decoder, drafters = switching(policy)
    assert new_tokens(decoder, prompt, 40) == reference_runs[0]["greedy_ids"][:40]
    calls = len(drafters["dflash2"].calls)
    assert new_tokens(decoder, prompt, 40) == reference_runs[0]["greedy_ids"][:40]
    assert len(drafters["dflash2"].calls) > calls


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), case=st.integers(0, 2))
def test_the_adaptive_policy_gives_the_greedy_tokens(
    switching: Open, reference_runs: list[dict[str, Any]], data: st.DataObject, case: int
) -> None:
    seconds, share = st.floats(0.1, 10), st.floats(0, 1)
    points = {choice: ((0, data.draw(seconds)), (100, data.draw(seconds))) for choice in CHOICES}
    acceptance = {"mtp": MTP_MOST, "dflash2": DFLASH2_MOST}
    measured = Measurements(
        RoundTimes(points), {name: tuple(data.draw(share) for _ in range(most)) for name, most in acceptance.items()}
    )
    decoder, _ = switching(AdaptivePolicy(measured))
    run = reference_runs[case]
    assert decode_with(decoder, run["prompt_ids"], 60).token_ids == run["greedy_ids"][:60]


def test_the_plan_names_what_to_load(reference_artifact: Artifact) -> None:
    segments = parse_segments("mtp<10<=dflash2<20<=none", tuple(KINDS))
    plan = resolve_thresholds(segments, None, reference_artifact.manifest, RunContext("onnxruntime"))
    assert plan.draft_stages == ("draft_mtp_3", "draft_dflash2")
    assert plan.rule.begin().draft_tokens == {"mtp": 3, "dflash2": 7}
