"""Rotary embeddings as transformers' ``rope_parameters`` describe them."""

from __future__ import annotations

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.spec import (
    LinearScaling,
    Llama3Scaling,
    ProportionalScaling,
    RopeScaling,
    RopeSpec,
    YarnScaling,
)

TYPES = ("default", "linear", "dynamic", "llama3", "proportional", "yarn")

_MAX_FACTOR = 1e6


def read_rope(
    config: Fields, head_dim: int, *, default_theta: float, default_fraction: float, default_positions: int | None
) -> RopeSpec:
    """Read ``rope_parameters``, or the older ``rope_scaling`` and fields of the top level.

    ``default_positions`` is max_position_embeddings where the config does not say; None: no limit is known.

    Raises:
        CheckpointError: the type is not one that can be built, or a setting does not fit.
    """
    parameters = _parameters(config)
    kind = _kind(parameters)
    theta = parameters.first("rope_theta", config).number("rope_theta", default_theta)
    fraction = parameters.first("partial_rotary_factor", config).number("partial_rotary_factor", default_fraction)
    rotary_dim = int(head_dim * fraction)
    if theta <= 0 or rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise config.error("rope_parameters", f"gives theta {theta:g} and {rotary_dim} rotated of {head_dim} channels")
    positions = default_positions
    if "max_position_embeddings" in config:
        positions = config.integer("max_position_embeddings")
    if kind == "proportional":
        # Its frequencies are those of the whole head, and the channels it leaves alone rotate by nothing.
        scaling: RopeScaling = ProportionalScaling(_factor(parameters, 1.0), rotary_dim // 2)
        return RopeSpec(theta, head_dim, scaling, positions)
    if kind == "linear":
        return RopeSpec(theta, rotary_dim, LinearScaling(_factor(parameters)), positions)
    if kind in ("llama3", "yarn"):
        holder = config if "original_max_position_embeddings" in config else parameters
        original = holder.integer("original_max_position_embeddings", positions)
        if kind == "llama3":
            return RopeSpec(theta, rotary_dim, _llama3(parameters, original), positions)
        yarn = _yarn(parameters, theta, original, positions)
        # The one type whose factor says how much further than trained positions may go.
        return RopeSpec(theta, rotary_dim, yarn, max(positions or 0, int(yarn.factor * original)))
    # Up to max_position_embeddings dynamic is default; beyond, every length has frequencies of its own, which caches
    # that hold rotated keys cannot follow, so the limit stays where it is.
    return RopeSpec(theta, rotary_dim, None, positions)


def _parameters(config: Fields) -> Fields:
    # transformers lets the older field win where both are there.
    scaling = config.section("rope_scaling")
    return scaling if scaling.names else config.section("rope_parameters")


def _kind(parameters: Fields) -> str:
    named = "rope_type" if "rope_type" in parameters else "type"
    kind = parameters.text(named, "default")
    if kind not in TYPES:
        raise parameters.error(named, f"is {kind!r}; {', '.join(TYPES)} can be built")
    if kind == "default" and parameters.number("factor", 1.0) != 1.0:
        raise parameters.error("factor", f"is {parameters.number('factor'):g}, but no rope_type says how it scales")
    return kind


def _factor(parameters: Fields, *default: float) -> float:
    factor = parameters.number("factor", *default)
    if not 1.0 <= factor <= _MAX_FACTOR:
        raise parameters.error("factor", f"is {factor:g}, where a number from 1 to {_MAX_FACTOR:g} is wanted")
    return factor


def _llama3(parameters: Fields, original: int) -> Llama3Scaling:
    low, high = (parameters.positive(f"{name}_freq_factor") for name in ("low", "high"))
    if high <= low:
        raise parameters.error("high_freq_factor", f"is {high:g}, not more than low_freq_factor {low:g}")
    return Llama3Scaling(_factor(parameters), low, high, original)


def _yarn(parameters: Fields, theta: float, original: int, positions: int | None) -> YarnScaling:
    if theta <= 1:
        raise parameters.error("rope_theta", f"is {theta:g}; yarn needs more than 1")
    factor = _factor(parameters, (positions or original) / original)
    attention = parameters.positive("attention_factor") if "attention_factor" in parameters else None
    scales = (parameters.number(name, 0.0) for name in ("mscale", "mscale_all_dim"))
    return YarnScaling(
        factor,
        original,
        beta_fast=parameters.positive("beta_fast", 32.0),
        beta_slow=parameters.positive("beta_slow", 1.0),
        truncate=parameters.boolean("truncate", True),
        attention_factor=attention,
        scales=(next(scales), next(scales)),
    )
