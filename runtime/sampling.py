"""How tokens are drawn, and the random numbers for it: a function of seed, purpose and position alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfc.runtime.engine import Array, Buffer, Engine, integers

NEUTRAL_PENALTIES = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
"""The values with which a penalty changes nothing."""

CONSTANTS = ("temperature", "top_p", "min_p", *NEUTRAL_PENALTIES)

ACCEPT, CHOICE = 1, 2
"""The independent streams: accepting the draft at a position, and drawing the token there."""

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
    """The inputs of a sampling stage for one number of judged rows."""

    def __init__(self, engine: Engine, sampling: Sampling, judged: int) -> None:
        self._judged = judged
        names = {tensor.name for tensor in engine.stage.inputs}
        self._noise = {
            name: (stream, engine.share("float32", (1, judged)))
            for name, stream in (("accept_uniforms", ACCEPT), ("choice_uniforms", CHOICE))
            if name in names
        }
        self._constants = {name: engine.share("float32", (1,)) for name in CONSTANTS}
        self._top_k = engine.share("int64", (1,))
        self._prompt_rows = engine.share("int64", (1,))
        self.shape(sampling)

    def shape(self, sampling: Sampling) -> None:
        """Shape the distribution of the calls to come."""
        for name, buffer in self._constants.items():
            buffer.write(np.array([getattr(sampling, name)], np.float32))
        self._top_k.write(integers([sampling.top_k]))

    @property
    def buffers(self) -> dict[str, Buffer]:
        """The buffers by the names of the stage's inputs."""
        noise = {name: buffer for name, (_, buffer) in self._noise.items()}
        return {"prompt_rows": self._prompt_rows, "top_k": self._top_k, **self._constants, **noise}

    def write(self, seed: int, position: int, prompt_rows: int) -> None:
        """Set the numbers for a call whose first judged row chooses the token at `position`; of its rows `prompt_rows`
        are a prompt's."""
        self._prompt_rows.write(integers([prompt_rows]))
        for stream, buffer in self._noise.values():
            buffer.write(uniforms(seed, stream, position, self._judged)[np.newaxis])
