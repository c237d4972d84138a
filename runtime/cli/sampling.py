"""How tokens are drawn, from the command line."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TypeVar

import click

from dfc.runtime.cli.options import option_group
from dfc.runtime.generation_config import SamplingDefaults
from dfc.runtime.sampling import Sampling

Value = TypeVar("Value", int, float)

SEED_BITS = 32
"""Of a seed that is chosen for the user: enough, and short to type again."""


@dataclass(frozen=True)
class SamplingRequest:
    """The options as given."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    greedy: bool


sampling_options = option_group(
    "sampling",
    SamplingRequest,
    click.option(
        "--temperature", type=click.FloatRange(min=0), help="Sample at this temperature; 0 takes the likeliest token."
    ),
    click.option("--top-k", type=click.IntRange(min=0), help="Sample from the K likeliest tokens; 0 from all."),
    click.option(
        "--top-p",
        type=click.FloatRange(min=0, max=1, min_open=True),
        help="Sample from the fewest tokens that have this probability together.",
    ),
    click.option(
        "--min-p",
        type=click.FloatRange(min=0, max=1),
        help="Sample from tokens at least this likely, relative to the likeliest.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0, max=2**63 - 1),
        help="The same seed gives the same tokens.  [default: a new one]",
    ),
    click.option("--greedy", is_flag=True, help="Take the likeliest token, whatever the model's defaults."),
)


def resolve_sampling(request: SamplingRequest, defaults: SamplingDefaults) -> Sampling | None:
    """Return how to sample, None for greedy decoding.

    Options win over the model's `generation_config.json`, which counts where it says `do_sample` or where the user
    asks to sample.

    Raises:
        click.UsageError: two options contradict each other, or one has no effect.
    """
    shaping = {"--top-k": request.top_k, "--top-p": request.top_p, "--min-p": request.min_p}
    given = [name for name, value in shaping.items() if value is not None]
    if request.greedy:
        others = [*(["--temperature"] if request.temperature else []), *given]
        if others:
            raise click.UsageError(f"--greedy takes the likeliest token, so {others[0]} has no effect; leave out one")
    elif request.temperature == 0 and given:
        raise click.UsageError(
            f"--temperature 0 takes the likeliest token, so {given[0]} has no effect; leave out one of the two"
        )
    asked = request.temperature is not None or bool(given)
    temperature = _first(request.temperature, defaults.temperature, 1.0)
    if request.greedy or not (asked or defaults.do_sample) or temperature == 0:
        if request.seed is not None:
            raise click.UsageError("--seed has no effect on greedy decoding; add --temperature or leave it out")
        return None
    return Sampling(
        temperature=temperature,
        top_k=_first(request.top_k, defaults.top_k, 0),
        top_p=_first(request.top_p, defaults.top_p, 1.0),
        min_p=_first(request.min_p, defaults.min_p, 0.0),
        seed=secrets.randbits(SEED_BITS) if request.seed is None else request.seed,
    )


def describe(sampling: Sampling | None) -> str:
    """Return the statistics' line."""
    if sampling is None:
        return "greedy"
    parts = [f"temperature {sampling.temperature:g}"]
    parts += [f"top-k {sampling.top_k}"] if sampling.top_k else []
    parts += [f"top-p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    parts += [f"min-p {sampling.min_p:g}"] if sampling.min_p else []
    return f"sampled with {', '.join(parts)}, seed {sampling.seed}"


def _first(*values: Value | None) -> Value:
    return next(value for value in values if value is not None)
