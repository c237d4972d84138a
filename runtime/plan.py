"""Which drafter a run uses: resolved once, before anything is loaded, and concrete from there on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from dfc.artifacts import Component, Manifest
from dfc.runtime.errors import RunError

Speculation = Literal["none", "mtp", "dflash2"]
RequestedSpeculation = Literal["auto", "none", "mtp", "dflash2"]

DEFAULT_MTP_DRAFT_TOKENS = 3
"""Acceptance falls with every recursive step of the same head, while each step costs the same."""


@dataclass(frozen=True)
class SpeculationRequest:
    """What the user asked for; `draft_tokens` None leaves the number to the drafter's default."""

    speculation: RequestedSpeculation = "auto"
    draft_tokens: int | None = None


@dataclass(frozen=True)
class RunContext:
    """Where the run happens."""

    backend: str


@dataclass(frozen=True)
class SpeculationPlan:
    """The drafter, how many tokens it drafts a round (0 without one), why, and the stages to load."""

    speculation: Speculation
    draft_tokens: int
    reason: str
    target_stage: str
    draft_stage: str | None


@dataclass(frozen=True)
class _Limits:
    """Draft tokens a drafter takes by default and at most."""

    default: int
    most: int


def resolve(request: SpeculationRequest, manifest: Manifest, context: RunContext) -> SpeculationPlan:
    """Choose the drafter and the number of draft tokens.

    `auto` takes DFlash2 where the artifact has it, else MTP, else plain decoding.

    Raises:
        RunError: the drafter asked for is not in the artifact or has no engine for the backend, or the number of draft
            tokens does not fit it.
    """
    if request.draft_tokens == 0 or request.speculation == "none":
        if request.draft_tokens and request.speculation == "none":
            raise RunError(
                "--draft-tokens needs a drafter, but --spec none decodes without one; leave out one of the two"
            )
        return _plain("plain decoding was asked for")
    available = [name for name in _LIMITS if _has(name, manifest, context)]
    if request.speculation == "auto":
        if not available:
            if request.draft_tokens:
                raise RunError("--draft-tokens needs a drafter, but the artifact holds none; build it with --draft")
            return _plain("the artifact holds no drafter")
        chosen = available[0]
        reason = f"auto: the artifact holds {' and '.join(available)}, and {chosen} comes first"
    elif request.speculation in available:
        chosen, reason = request.speculation, f"{request.speculation} was asked for"
    else:
        holds = " and ".join(available) or "no drafter"
        raise RunError(
            f"--spec {request.speculation} is not possible: the artifact holds {holds} for {context.backend};"
            " choose one it holds or build it again with that drafter"
        )
    limits = _LIMITS[chosen](manifest.components[chosen])
    draft_tokens = request.draft_tokens or limits.default
    if draft_tokens > limits.most:
        raise RunError(
            f"--draft-tokens {draft_tokens} is more than the {limits.most} that this artifact's {chosen} drafter takes"
        )
    stage = _STAGES[chosen](draft_tokens)
    return SpeculationPlan(chosen, draft_tokens, reason, target_stage="target_verify", draft_stage=stage)


def _plain(reason: str) -> SpeculationPlan:
    return SpeculationPlan("none", 0, reason, target_stage="target_advance", draft_stage=None)


def _has(name: Drafter, manifest: Manifest, context: RunContext) -> bool:
    if name not in manifest.components:
        return False
    stage = manifest.stages.get(_STAGES[name](1))
    return stage is not None and context.backend in stage.engines


def _mtp_limits(component: Component) -> _Limits:
    most = _number(component, "draft_tokens")
    return _Limits(default=min(DEFAULT_MTP_DRAFT_TOKENS, most), most=most)


def _dflash2_limits(component: Component) -> _Limits:
    most = _number(component, "draft_tokens")
    return _Limits(default=most, most=most)


def _number(component: Component, name: str) -> int:
    value = component.parameters.get(name)
    if not isinstance(value, int):
        raise RunError(f"the artifact's manifest has no number {name} for {component.source}; build it again")
    return value


Drafter = Literal["dflash2", "mtp"]

_LIMITS: dict[Drafter, Callable[[Component], _Limits]] = {"dflash2": _dflash2_limits, "mtp": _mtp_limits}
"""In the order `auto` prefers them."""

_STAGES: dict[Drafter, Callable[[int], str]] = {
    "dflash2": lambda draft_tokens: "draft_dflash2",
    "mtp": lambda draft_tokens: f"draft_mtp_{draft_tokens}",
}

assert set(get_args(Drafter)) == set(_LIMITS) == set(_STAGES)
