"""How tokens are drawn, from the command line."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from dfc.runtime.cli.options import option_group
from dfc.runtime.generation_config import SamplingDefaults
from dfc.runtime.sampling import LIKELIEST, NEUTRAL_PENALTIES, Sampling

Value = TypeVar("Value", int, float)

MOST_BIAS = 100.0
"""Of a logit: more than any two logits differ by."""

SEED_BITS = 32
"""Of a seed that is chosen for the user: enough, and short to type again."""


@dataclass(frozen=True)
class SamplingRequest:
    """The options as given."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    logit_bias: tuple[tuple[int, float], ...]
    seed: int | None
    greedy: bool


class _Bias(click.ParamType[tuple[int, float]]):
    """TOKEN=VALUE."""

    name = "TOKEN=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        token, _, number = str(value).partition("=")
        try:
            bias = int(token), float(number)
        except ValueError:
            self.fail(f"{value!r} is not a token id and a number, such as 198=-5", param, ctx)
        if bias[0] < 0 or not abs(bias[1]) <= MOST_BIAS:
            self.fail(f"{value!r}: the id is 0 or more, the number -{MOST_BIAS:g} to {MOST_BIAS:g}", param, ctx)
        return bias


BIAS = _Bias()

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
        "--repetition-penalty",
        type=click.FloatRange(min=0, min_open=True),
        help="Above 1, make tokens of prompt and answer less likely.",
    ),
    click.option(
        "--frequency-penalty",
        type=click.FloatRange(-2, 2),
        help="Take this off a token's logit for each time it stands in the answer.",
    ),
    click.option(
        "--presence-penalty",
        type=click.FloatRange(-2, 2),
        help="Take this off a token's logit once it stands in the answer.",
    ),
    click.option(
        "--logit-bias",
        type=BIAS,
        multiple=True,
        help="Add this to a token's logit: 198=-5 or 198=2.5; may be repeated.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0, max=2**63 - 1),
        help="The same seed gives the same tokens.  [default: a new one]",
    ),
    click.option("--greedy", is_flag=True, help="Take the likeliest token, whatever the model's defaults."),
)


def resolve_sampling(request: SamplingRequest, defaults: SamplingDefaults, vocab_size: int) -> Sampling | None:
    """Return how to choose tokens, None for greedy decoding without penalties.

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
    greedy = request.greedy or not (asked or defaults.do_sample) or temperature == 0
    if greedy and request.seed is not None:
        raise click.UsageError("--seed has no effect on greedy decoding; add --temperature or leave it out")
    twice = [token for token, count in Counter(token for token, _ in request.logit_bias).items() if count > 1]
    if twice:
        raise click.UsageError(f"--logit-bias is given twice for token {twice[0]}; leave out one")
    past = [token for token, _ in request.logit_bias if token >= vocab_size]
    if past:
        raise click.UsageError(f"--logit-bias names token {past[0]}; the model's tokens are below {vocab_size}")
    shaping_logits: dict[str, Any] = {
        name: _first(getattr(request, name), getattr(defaults, name, None), neutral)
        for name, neutral in NEUTRAL_PENALTIES.items()
    }
    shaping_logits["logit_bias"] = request.logit_bias
    if greedy:
        likeliest = Sampling(0.0, 0, 1.0, 0.0, 0, **shaping_logits)
        return None if likeliest == LIKELIEST else likeliest
    return Sampling(
        temperature=temperature,
        top_k=_first(request.top_k, defaults.top_k, 0),
        top_p=_first(request.top_p, defaults.top_p, 1.0),
        min_p=_first(request.min_p, defaults.min_p, 0.0),
        seed=secrets.randbits(SEED_BITS) if request.seed is None else request.seed,
        **shaping_logits,
    )


def describe(sampling: Sampling | None) -> str:
    """Return the statistics' line."""
    if sampling is None:
        return "greedy"
    penalties = [f"{name.replace('_', ' ')} {value:g}" for name, value in sampling.penalties.items()]
    if sampling.logit_bias:
        penalties.append(f"a bias on {len(sampling.logit_bias)} token{'s' if len(sampling.logit_bias) > 1 else ''}")
    if sampling.temperature == 0:
        return f"greedy with {', '.join(penalties)}"
    parts = [f"temperature {sampling.temperature:g}"]
    parts += [f"top-k {sampling.top_k}"] if sampling.top_k else []
    parts += [f"top-p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    parts += [f"min-p {sampling.min_p:g}"] if sampling.min_p else []
    parts += penalties
    return f"sampled with {', '.join(parts)}, seed {sampling.seed}"


def _first(*values: Value | None) -> Value:
    return next(value for value in values if value is not None)
