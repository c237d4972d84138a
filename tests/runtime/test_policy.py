"""Thresholds: how they are read, and what they choose."""

from __future__ import annotations

import pytest

from dfc.runtime.policy import Choice, LengthThresholds, Segment, parse_segments

DRAFTERS = ("dflash2", "dflash", "mtp")
SEGMENTS = (Segment("mtp", 4096), Segment("dflash2", 32768), Segment("none", None))
POLICY = LengthThresholds(SEGMENTS, {"mtp": 3, "dflash2": 7})


@pytest.mark.parametrize("text", ["mtp<4096<=dflash2<32768<=none", " mtp < 4096 <= dflash2 < 32768 <= none "])
def test_thresholds_are_read(text: str) -> None:
    assert parse_segments(text, DRAFTERS) == SEGMENTS


@pytest.mark.parametrize(
    "text, fragment",
    [
        ("", "'' is no drafter"),
        ("mpt<5<=none", "'mpt' is no drafter; write one of dflash2, dflash, mtp, none"),
        ("auto<5<=none", "'auto' is no drafter"),
        ("mtp<=5<none", "is no drafter"),
        ("mtp<-5<=none", "is no drafter"),
        ("mtp<5<=", "'' is no drafter"),
        ("mtp<5<=mtp", "same drafter"),
        ("mtp<50<=dflash2<50<=none", "must rise"),
        ("mtp<0<=none", "must rise"),
        ("none", "names no drafter"),
    ],
)
def test_other_text_is_refused(text: str, fragment: str) -> None:
    with pytest.raises(ValueError, match=fragment):
        parse_segments(text, DRAFTERS)


@pytest.mark.parametrize(
    "length, previous, drafter, draft_tokens",
    [
        (1, None, "mtp", 3),
        (4095, None, "mtp", 3),
        (4095, "mtp", "mtp", 3),
        (4096, "mtp", "dflash2", 7),
        (4095, "dflash2", "dflash2", 7),
        (4032, "dflash2", "dflash2", 7),
        (4031, "dflash2", "mtp", 3),
        (32767, "none", "none", 0),
        (32768, None, "none", 0),
        (4095, "none", "mtp", 3),
    ],
)
def test_choice_by_length(length: int, previous: str | None, drafter: str, draft_tokens: int) -> None:
    before = None if previous is None else Choice(previous, 0, "")
    chosen = POLICY.choose(length, before)
    assert (chosen.drafter, chosen.draft_tokens) == (drafter, draft_tokens)
    assert str(length) in chosen.reason


@pytest.mark.parametrize(
    "length, possible", [(1, {"mtp", "dflash2"}), (4096, {"dflash2"}), (32767, {"dflash2"}), (32768, set())]
)
def test_who_may_still_be_chosen(length: int, possible: set[str]) -> None:
    assert POLICY.possible(length) == possible
