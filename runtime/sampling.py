"""How tokens are drawn, and the random numbers for it: a function of seed, purpose and position alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dfc.runtime.engine import Array, Buffer, Engine

NEUTRAL_PENALTIES = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
"""The values with which a penalty changes nothing."""

NUMBERS = ("temperature", "top_p", "min_p", *NEUTRAL_PENALTIES)
"""The parameters of a sequence that are float32 numbers."""

ACCEPT, CHOICE, DRAFT = 1, 2, 3
"""The independent streams: accepting the draft at a position, drawing the token there, and drawing the draft."""

STREAMS = {"accept_uniforms": ACCEPT, "choice_uniforms": CHOICE, "draft_uniforms": DRAFT}
"""By the names of a stage's inputs."""

FRACTION_BITS = 23
"""A uniform number is a multiple of 2 ** -23, so that float32 holds it exactly and never rounds it to 1."""


@dataclass(frozen=True)
class Sampling:
    """The target's distribution as the user shapes it; ``temperature`` 0 takes the likeliest token, ``top_k`` 0 keeps
    all."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float = NEUTRAL_PENALTIES["repetition_penalty"]
    frequency_penalty: float = NEUTRAL_PENALTIES["frequency_penalty"]
    presence_penalty: float = NEUTRAL_PENALTIES["presence_penalty"]
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids and what is added to their logits."""

    @property
    def penalties(self) -> dict[str, float]:
        """The penalties that change something, by name."""
        given = {name: float(getattr(self, name)) for name in NEUTRAL_PENALTIES}
        return {name: value for name, value in given.items() if value != NEUTRAL_PENALTIES[name]}


LIKELIEST = Sampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)
"""Greedy decoding, for an answer whose neighbours are sampled."""


def uniforms(seed: int, stream: int, position: int, count: int) -> Array:
    """Return float32 numbers in [0, 1) for `count` positions from `position` on.

    Philox is counter-based: what belongs to a position does not depend on how many numbers were asked for before.
    """
    generator = np.random.Philox(key=np.array([seed, stream], np.uint64), counter=position)
    # A step of the counter gives four words; each position takes the first of its own.
    words: Array = generator.random_raw(4 * count)[::4]
    return (words >> np.uint64(64 - FRACTION_BITS)).astype(np.float32) * np.float32(2.0**-FRACTION_BITS)


class SamplingInputs:
    """What a sampling stage of the target or of a drafter is given, for every sequence of the batch its own."""

    def __init__(self, engine: Engine, batch: int = 1) -> None:
        self._engine = engine
        self._seeds = [0] * batch
        self._shapes = {tensor.name: tensor.shape for tensor in engine.stage.inputs}
        dtypes = {**dict.fromkeys(NUMBERS, "float32"), "top_k": "int64"}
        self._numbers = {name: engine.share(dtype, (batch,)) for name, dtype in dtypes.items() if name in self._shapes}
        self._prompt_rows = engine.share("int64", (batch,)) if "prompt_rows" in self._shapes else None
        # A number for every token of the vocabulary: not for the host to hand over in every round.
        bias = self._shapes.get("logit_bias")
        self._bias = None if bias is None else engine.allocate("float32", (batch, int(bias[1])))
        self._biased = [False] * batch
        self._noise: dict[int, dict[str, Buffer]] = {}
        for place in range(batch):
            self.shape(LIKELIEST, place)

    def shape(self, sampling: Sampling, place: int = 0) -> None:
        """Shape the distribution of one sequence, and seed it, for the calls to come."""
        self._seeds[place] = sampling.seed
        if sampling.top_k == 1:
            # The same distribution, and drafters, which know of no top-k, propose their likeliest tokens for it.
            sampling = replace(sampling, temperature=0.0)
        for name, buffer in self._numbers.items():
            values = buffer.read()
            values[place] = getattr(sampling, name)
            buffer.write(values)
        if self._bias is not None and (sampling.logit_bias or self._biased[place]):
            bias = self._bias.read()
            bias[place] = 0.0
            for token, value in sampling.logit_bias:
                bias[place, token] = value
            self._bias.write(bias)
            self._biased[place] = bool(sampling.logit_bias)

    def buffers(self, count: int) -> dict[str, Buffer]:
        """Return the buffers of calls that choose this many tokens, by the names of the stage's inputs."""
        if count not in self._noise:
            shape = (len(self._seeds), count)
            self._noise[count] = {
                name: self._engine.share("float32", shape) for name in STREAMS if name in self._shapes
            }
        shared = {"prompt_rows": self._prompt_rows, "logit_bias": self._bias}
        given = {name: buffer for name, buffer in shared.items() if buffer is not None}
        return {**given, **self._numbers, **self._noise[count]}

    def write(self, count: int, positions: Mapping[int, int], prompt_rows: int = 0) -> None:
        """Set the numbers for a call: at `positions`, by the sequences' places, is the first of the `count` tokens that
        it chooses; of its rows `prompt_rows` are a prompt's."""
        if self._prompt_rows is not None:
            self._prompt_rows.write(np.full(len(self._seeds), prompt_rows, np.int64))
        for name, buffer in self._noise[count].items():
            noise = np.zeros((len(self._seeds), count), np.float32)
            for place, position in positions.items():
                noise[place] = uniforms(self._seeds[place], STREAMS[name], position, count)
            buffer.write(noise)
