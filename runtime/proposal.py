"""What a drafter's call writes and the target's call reads: drafts, and the distribution that each was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dfc.runtime.engine import Array, Buffer, Engine

CANDIDATES, PROBABILITIES = "draft_candidates", "draft_probabilities"


@dataclass(frozen=True)
class Proposal:
    """Buffers of tokens [N, S] and, where drafts are drawn, of candidates int64 and their probabilities float32
    [N, S, K]."""

    tokens: Buffer
    candidates: Buffer | None = None
    probabilities: Buffer | None = None

    def bindings(self) -> dict[str, Buffer]:
        """Return the buffers by the names of the stages' tensors."""
        named = {"draft_tokens": self.tokens, CANDIDATES: self.candidates, PROBABILITIES: self.probabilities}
        return {name: buffer for name, buffer in named.items() if buffer is not None}

    @property
    def distribution(self) -> dict[str, Buffer]:
        """The buffers of candidates and probabilities by name; none of them where drafts are not drawn."""
        return {name: buffer for name, buffer in self.bindings().items() if name != "draft_tokens"}


def proposal_buffers(engine: Engine, batch: int, slots: int) -> Proposal:
    """Return buffers for what a drafter's engine proposes."""
    tokens = engine.share("int64", (batch, slots))
    width = candidate_count(engine)
    if width is None:
        return Proposal(tokens)
    shape = (batch, slots, width)
    return Proposal(tokens, engine.allocate("int64", shape), engine.allocate("float32", shape))


def candidate_count(engine: Engine) -> int | None:
    """Return how many candidates a slot has for this stage; None for a stage that knows none."""
    tensors = (*engine.stage.inputs, *engine.stage.outputs)
    return next((int(tensor.shape[-1]) for tensor in tensors if tensor.name == CANDIDATES), None)


def certain(draft_tokens: Sequence[int], slots: int, width: int) -> tuple[Array, Array]:
    """Return candidates and probabilities [1, slots, width] of drafts that were not drawn: they had no alternative."""
    candidates = np.broadcast_to(np.arange(width, dtype=np.int64), (1, slots, width)).copy()
    probabilities = np.zeros((1, slots, width), np.float32)
    for slot, token in enumerate(draft_tokens):
        # Candidates differ from each other: what stood where the token has its place now takes the first one.
        if token < width:
            candidates[0, slot, token] = candidates[0, slot, 0]
        candidates[0, slot, 0] = token
        probabilities[0, slot, 0] = 1.0
    return candidates, probabilities
