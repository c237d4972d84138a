"""Many answers to one prompt, side by side: the prompt is taken in once and every answer starts from its states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dfc.artifacts import Artifact
from dfc.runtime.batch import AdvancingBatch, BatchRounds, DraftingBatch, Row, Rows, VerifyingBatch
from dfc.runtime.decode import InFlight, PlainDecoder, SpeculativeDecoder
from dfc.runtime.engine import Array, Engine
from dfc.runtime.engines import open_engines
from dfc.runtime.plan import RunContext, SpeculationPlan, SpeculationRequest, resolve
from dfc.runtime.proposal import PROBABILITIES
from dfc.runtime.sampling import Sampling
from dfc.runtime.target import AdvancingTarget, VerifyingTarget

PLACES = 64
BACKEND = "onnxruntime"

Falsify = Callable[[Array], Array]
"""Turns the q [N, S, K] that a drafter hands on into another one."""


class FalseDraftingBatch(DraftingBatch):
    """A drafter that draws from one distribution and hands on another."""

    def __init__(self, engine: Engine, draft_tokens: int, size: int, falsify: Falsify) -> None:
        super().__init__(engine, draft_tokens, size)
        self._falsify = falsify

    def draft(self, rows: Rows) -> Array:
        drafts = super().draft(rows)
        handed_on = self.proposal.distribution[PROBABILITIES]
        handed_on.write(self._falsify(handed_on.read()).astype(np.float32))
        return drafts


def draw_answers(
    artifact: Artifact,
    speculation: str,
    prompt: list[int],
    sampling: Sampling,
    count: int,
    tokens: int,
    falsify: Falsify | None = None,
) -> Array:
    """Return `count` answers' first `tokens` tokens [count, tokens], each drawn with a seed of its own."""
    plan = resolve(SpeculationRequest(speculation), artifact.manifest, RunContext(BACKEND))
    assert isinstance(plan, SpeculationPlan)
    rounds, taken_in = _open(artifact, plan, prompt, sampling, falsify)
    rows: dict[int, Row] = {}
    answers: dict[int, list[int]] = {}
    finished: list[list[int]] = []
    seed = sampling.seed

    def admit(place: int) -> None:
        nonlocal seed
        rounds.admit(place, taken_in, replace(sampling, seed=seed))
        rows[place] = Row(taken_in.length, taken_in.next_ids)
        answers[place] = []
        seed += 1

    for place in range(PLACES):
        admit(place)
    while len(finished) < count:
        for place, done in rounds.step(rows).items():
            answers[place] += done.tokens
            if len(answers[place]) >= tokens:
                finished.append(answers[place][:tokens])
                admit(place)
    return np.array(finished[:count])


def _open(
    artifact: Artifact, plan: SpeculationPlan, prompt: list[int], sampling: Sampling, falsify: Falsify | None
) -> tuple[BatchRounds, InFlight]:
    """Return what does the rounds, and the prompt taken in up to its last token, which is the anchor."""
    open_stage = open_engines(artifact, BACKEND)
    target = open_stage(f"{plan.target_stage}_sampling")
    if plan.drafter is None:
        plain = PlainDecoder(AdvancingTarget(target, sampling))
        plain.start(prompt[:-1])
        return AdvancingBatch(target, PLACES, sampled=True), _anchored(plain.in_flight(), prompt[-1])
    engine = open_stage(f"{plan.draft_stage}_sampling")
    speculative = SpeculativeDecoder(VerifyingTarget(target, sampling), plan.drafter.open(engine, plan.draft_tokens))
    speculative.start(prompt[:-1])
    draft = (
        DraftingBatch(engine, plan.draft_tokens, PLACES)
        if falsify is None
        else FalseDraftingBatch(engine, plan.draft_tokens, PLACES, falsify)
    )
    return VerifyingBatch(target, draft, PLACES, sampled=True), _anchored(speculative.in_flight(), prompt[-1])


def _anchored(sequence: InFlight, anchor: int) -> InFlight:
    """Return the sequence with another token in place of the one drawn last."""
    return replace(sequence, next_ids=(*sequence.next_ids[:-1], anchor))
