"""Acceptance and the draw after it, over many rows at once: tokens have the target's distribution, drafts or not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dfc.compiler.engines.onnxruntime import compile_graph
from dfc.compiler.export.stage import StageBuilder
from dfc.compiler.models.choice import SampledChoice
from dfc.compiler.models.layers import FLOAT, INT64
from dfc.compiler.models.verification import find_drafts
from dfc.runtime.engine import Array
from dfc.runtime.engines.onnxruntime import library
from dfc.runtime.proposal import certain
from dfc.runtime.sampling import ACCEPT, CHOICE, DRAFT, uniforms
from tests.compiler.test_sampling import expected_distribution
from tests.statistics import chi_square_p

DRAWS = 40_000
ROWS, REAL, PADDED = 4, 12, 16
CANDIDATES = 5
SETTINGS = [
    (temperature, top_k, top_p, min_p)
    for temperature in (0.6, 1.0, 1.3)
    for top_k, top_p, min_p in ((0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (7, 0.9, 0.05))
]


@pytest.fixture(scope="module")
def session() -> Any:
    stage = StageBuilder("judge", "target")
    spec: Any = SimpleNamespace(candidate_vocab_size=REAL, vocab_size=PADDED)
    chooser = SampledChoice(stage, spec, CANDIDATES)
    logits = stage.input("logits", FLOAT, ("N", "J", PADDED))
    input_ids, rows = stage.input("input_ids", INT64, ("N", "T")), stage.input("rows", INT64, ("N", "J"))
    forced, valid = stage.input("forced", INT64, ("N",)), stage.input("valid", INT64, ("N",))
    verdict = chooser.judge(logits, find_drafts(stage.op, input_ids, rows, valid), input_ids, forced)
    stage.output("accepted", verdict.accepted, INT64, ("N",))
    stage.output("anchor", verdict.anchor, INT64, ("N",))
    options = library().SessionOptions()
    options.use_per_session_threads = False
    return library().InferenceSession(compile_graph(stage.finish(ROWS)), options, providers=["CPUExecutionProvider"])


def judge(
    session: Any, logits: Array, drafts: Array, settings: tuple[float, int, float, float], seed: int
) -> tuple[Array, Array]:
    """Return accepted and anchor of DRAWS sequences with the same logits [ROWS, PADDED] and drafts."""
    candidates, q = (np.repeat(values, DRAWS, axis=0) for values in certain(drafts.tolist(), ROWS, CANDIDATES))
    return judge_drawn(session, logits, np.tile(drafts, (DRAWS, 1)), candidates, q, settings, seed)


def judge_drawn(
    session: Any,
    logits: Array,
    drafts: Array,
    candidates: Array,
    q: Array,
    settings: tuple[float, int, float, float],
    seed: int,
) -> tuple[Array, Array]:
    """Return accepted and anchor of DRAWS sequences with the same logits [ROWS, PADDED], each with drafts of its own
    [DRAWS, drafted] and what they were drawn from, [DRAWS, ROWS, CANDIDATES]."""

    def repeat(values: Array) -> Array:
        return np.ascontiguousarray(np.broadcast_to(values, (DRAWS, *values.shape)))

    temperature, top_k, top_p, min_p = settings
    noise = {
        name: uniforms(seed, stream, 0, DRAWS * ROWS).reshape(DRAWS, ROWS)
        for name, stream in (("accept_uniforms", ACCEPT), ("choice_uniforms", CHOICE))
    }
    inputs = {
        "repetition_penalty": repeat(np.float32(1.0)),
        "frequency_penalty": repeat(np.float32(0.0)),
        "presence_penalty": repeat(np.float32(0.0)),
        "logit_bias": repeat(np.zeros(REAL, np.float32)),
        "prompt_rows": repeat(np.int64(0)),
        "seen_counts": repeat(np.zeros(REAL, np.float32)),
        "generated_counts": repeat(np.zeros(REAL, np.float32)),
        "temperature": repeat(np.float32(temperature)),
        "top_k": repeat(np.int64(top_k)),
        "top_p": repeat(np.float32(top_p)),
        "min_p": repeat(np.float32(min_p)),
        "logits": repeat(logits),
        "input_ids": np.concatenate([np.zeros((DRAWS, 1), np.int64), drafts.astype(np.int64)], axis=1),
        "draft_candidates": candidates,
        "draft_probabilities": q,
        "rows": repeat(np.arange(ROWS)),
        "forced": repeat(np.int64(1)),
        "valid": repeat(np.int64(1 + drafts.shape[1])),
    }
    accepted, anchor = session.run(["accepted", "anchor"], inputs | noise)
    return accepted, anchor


def draw_case(seed: int, count: int) -> tuple[Array, Array]:
    """Return logits, in which tokens that only pad are the likeliest, and drafts, likely and unlikely ones."""
    random = np.random.default_rng(seed)
    logits = (random.standard_normal((ROWS, PADDED)) * 1.5).astype(np.float32)
    logits[:, REAL:] += 5.0
    ranks = np.argsort(-logits[:, :REAL], axis=-1)
    return logits, np.array([ranks[row, row % 3] for row in range(count)])


@pytest.mark.parametrize("drafted", [0, 1, 3])
@pytest.mark.parametrize("settings", SETTINGS)
def test_tokens_have_the_distribution_of_the_target(
    session: Any, settings: tuple[float, int, float, float], drafted: int
) -> None:
    logits, drafts = draw_case(drafted, drafted)
    accepted, anchor = judge(session, logits, drafts, settings, seed=11)
    expected = expected_distribution(logits[:, :REAL], *settings)
    for position in range(drafted + 1):
        # The token at a position, of the sequences that took every draft before it.
        reached = accepted >= position
        tokens = np.where(accepted > position, drafts[position] if position < drafted else 0, anchor)[reached]
        counts = np.bincount(tokens, minlength=PADDED)
        assert not counts[REAL:].any()
        if reached.sum() > 1000:
            assert chi_square_p(counts[:REAL], expected[position]) > 1e-4, position


def draw_proposals(logits: Array, seed: int, temperature: float, said: float) -> tuple[Array, Array, Array]:
    """Return drafts [DRAWS, 3] drawn at a temperature, and the candidates and q that a drafter says it drew from.

    The candidates are some of the target's likelier tokens, the scores its logits and an error: some drafts are
    accepted, some refused.
    """
    random = np.random.default_rng(seed)
    likely = np.argsort(-logits[:, :REAL], axis=-1)[:, : CANDIDATES + 2]
    places = random.permuted(likely, axis=1)[:, :CANDIDATES]
    scores = np.take_along_axis(logits, places, axis=1) + random.standard_normal((ROWS, CANDIDATES)) * 0.7

    def softmax(values: Array) -> Array:
        weights = np.exp(values - values.max(-1, keepdims=True))
        return np.asarray(weights / weights.sum(-1, keepdims=True))

    noise = uniforms(seed, DRAFT, 0, DRAWS * 3).reshape(DRAWS, 3, 1)
    drawn = np.minimum((noise >= softmax(scores[:3] / temperature).cumsum(-1)).sum(-1), CANDIDATES - 1)
    drafts = np.take_along_axis(places[None, :3].repeat(DRAWS, 0), drawn[..., None], axis=2)[..., 0]
    q = softmax(scores / said).astype(np.float32)
    return drafts, np.repeat(places[None], DRAWS, axis=0), np.repeat(q[None], DRAWS, axis=0)


def least_p(drafts: Array, accepted: Array, anchor: Array, expected: Array) -> float:
    """Return the least p of the three positions that drafts stand at and the one behind them."""
    found = []
    for position in range(4):
        reached = accepted >= position
        draft = drafts[:, position] if position < 3 else anchor
        tokens = np.where(accepted > position, draft, anchor)[reached]
        if len(tokens) > 1000:
            found.append(chi_square_p(np.bincount(tokens, minlength=REAL), expected[position]))
    assert len(found) > 1
    return min(found)


@pytest.mark.parametrize("settings", SETTINGS)
def test_drawn_drafts_leave_the_distribution_of_the_target(
    session: Any, settings: tuple[float, int, float, float]
) -> None:
    logits, _ = draw_case(5, 0)
    drafts, candidates, q = draw_proposals(logits, 7, settings[0], said=settings[0])
    accepted, anchor = judge_drawn(session, logits, drafts, candidates, q, settings, seed=11)
    expected = expected_distribution(logits[:, :REAL], *settings)
    assert least_p(drafts, accepted, anchor, expected) > 1e-4


@pytest.mark.parametrize("temperature", [0.6, 1.3])
def test_a_q_that_is_not_the_drafts_own_is_seen(session: Any, temperature: float) -> None:
    """Scores that were not divided by the temperature."""
    settings = (temperature, 0, 1.0, 0.0)
    logits, _ = draw_case(5, 0)
    drafts, candidates, q = draw_proposals(logits, 7, temperature, said=1.0)
    accepted, anchor = judge_drawn(session, logits, drafts, candidates, q, settings, seed=11)
    expected = expected_distribution(logits[:, :REAL], *settings)
    assert least_p(drafts, accepted, anchor, expected) < 1e-6


def test_a_q_that_is_p_is_always_accepted(session: Any) -> None:
    logits, _ = draw_case(5, 0)
    places = np.argsort(-logits[:, :REAL], axis=-1)[:, :CANDIDATES]
    settings = (0.8, CANDIDATES, 1.0, 0.0)
    p = np.take_along_axis(expected_distribution(logits[:, :REAL], *settings), places, axis=1)
    noise = uniforms(3, DRAFT, 0, DRAWS * 3).reshape(DRAWS, 3, 1)
    drawn = np.minimum((noise >= p[:3].cumsum(-1)).sum(-1), CANDIDATES - 1)
    drafts = np.take_along_axis(places[None, :3].repeat(DRAWS, 0), drawn[..., None], axis=2)[..., 0]
    repeated = (np.repeat(values[None], DRAWS, axis=0) for values in (places, p.astype(np.float32)))
    accepted, _ = judge_drawn(session, logits, drafts, *repeated, settings, seed=11)
    # Rounding alone refuses: u of 1 - 2 ** -23 meets p / q of 1 - 2 ** -22.
    assert (accepted < 3).sum() <= 2


@pytest.mark.parametrize("drafted", [0, 3])
def test_the_test_sees_a_temperature_that_was_not_applied(session: Any, drafted: int) -> None:
    logits, drafts = draw_case(drafted, drafted)
    accepted, anchor = judge(session, logits, drafts, (0.6, 0, 1.0, 0.0), seed=11)
    wrong = expected_distribution(logits[:, :REAL], 1.0, 0, 1.0, 0.0)
    tokens = np.where(accepted > 0, drafts[0], anchor) if drafted else anchor
    assert chi_square_p(np.bincount(tokens, minlength=REAL), wrong[0]) < 1e-6


def test_the_test_sees_a_refused_draft_that_is_drawn_again(session: Any) -> None:
    """What was refused must not come back: drawing from p instead of the residual would count drafts twice."""
    logits, drafts = draw_case(1, 1)
    accepted, anchor = judge(session, logits, drafts, (1.0, 0, 1.0, 0.0), seed=11)
    assert not (anchor[accepted == 0] == drafts[0]).any()
    assert 0 < (accepted == 0).sum() < DRAWS


def test_a_temperature_of_zero_is_greedy_verification(session: Any) -> None:
    logits, _ = draw_case(0, 0)
    best = np.argmax(logits[:, :REAL], axis=-1)
    drafts = np.array([best[0], best[1], (best[2] + 1) % REAL])
    accepted, anchor = judge(session, logits, drafts, (0.0, 0, 1.0, 0.0), seed=3)
    assert set(accepted.tolist()) == {2}
    assert set(anchor.tolist()) == {best[2]}


def test_numbers_belong_to_positions() -> None:
    whole = uniforms(5, CHOICE, 100, 8)
    parts = np.concatenate([uniforms(5, CHOICE, 100, 3), uniforms(5, CHOICE, 103, 5)])
    np.testing.assert_array_equal(whole, parts)
    assert len({*whole.tolist(), *uniforms(5, ACCEPT, 100, 8).tolist(), *uniforms(6, CHOICE, 100, 8).tolist()}) == 24
    many = uniforms(1, ACCEPT, 0, 100_000)
    assert many.min() >= 0.0
    assert many.max() < 1.0
    assert chi_square_p(np.bincount((many * 64).astype(int), minlength=64), np.full(64, 1 / 64)) > 1e-4
