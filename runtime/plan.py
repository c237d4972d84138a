"""Which drafter a run uses: resolved once, before anything is loaded, and concrete from there on."""

from __future__ import annotations

from dataclasses import dataclass

from dfc.artifacts import Component, Manifest
from dfc.runtime.drafters import KINDS
from dfc.runtime.drafters.kind import DrafterKind
from dfc.runtime.errors import RunError
from dfc.runtime.policy import NONE, LengthThresholds, Rule, Segment

AUTO = "auto"

CHOICES = (AUTO, NONE, *KINDS)
"""What a user may ask for."""


@dataclass(frozen=True)
class SpeculationRequest:
    """What the user asked for, one of CHOICES; `draft_tokens` None leaves the number to the drafter's default."""

    speculation: str = AUTO
    draft_tokens: int | None = None


@dataclass(frozen=True)
class RunContext:
    """Where the run happens."""

    backend: str


@dataclass(frozen=True)
class SpeculationPlan:
    """What to load and run: a kind of drafter or none, never "auto"; `draft_tokens` is 0 without a drafter.

    ``draft_stage`` is the drafter's stage for that many tokens.
    """

    drafter: DrafterKind | None
    draft_tokens: int
    reason: str
    draft_stage: str = ""

    @property
    def speculation(self) -> str:
        """The drafter's name, or none."""
        return NONE if self.drafter is None else self.drafter.name

    @property
    def draft_stages(self) -> tuple[str, ...]:
        """The drafters' stages that the plan needs."""
        return () if self.drafter is None else (self.draft_stage,)

    @property
    def target_stage(self) -> str:
        """The stage of the target that the plan needs."""
        return "target_advance" if self.drafter is None else "target_verify"

    def describe(self) -> dict[str, object]:
        """Return what the reports say of the plan."""
        return {"backend": self.speculation, "reason": self.reason, "draft_tokens": self.draft_tokens}


@dataclass(frozen=True)
class SwitchingPlan:
    """Several drafters to load, each concrete, and the rule of the policy that chooses between them while running."""

    candidates: tuple[SpeculationPlan, ...]
    rule: Rule
    reason: str

    @property
    def speculation(self) -> str:
        """The drafters' names, in the order of the thresholds."""
        return " and ".join(candidate.speculation for candidate in self.candidates)

    @property
    def draft_tokens(self) -> int:
        """Most tokens that a round may draft."""
        return max(candidate.draft_tokens for candidate in self.candidates)

    @property
    def draft_stages(self) -> tuple[str, ...]:
        """The drafters' stages that the plan needs."""
        return tuple(candidate.draft_stage for candidate in self.candidates)

    @property
    def target_stage(self) -> str:
        """The stage of the target that the plan needs."""
        return "target_verify"

    def describe(self) -> dict[str, object]:
        """Return what the reports say of the plan."""
        return {
            "backend": self.speculation,
            "reason": self.reason,
            "draft_tokens": self.draft_tokens,
            "policy": self.rule.describe(),
        }


Plan = SpeculationPlan | SwitchingPlan


def resolve_thresholds(
    segments: tuple[Segment, ...], draft_tokens: int | None, manifest: Manifest, context: RunContext
) -> SwitchingPlan:
    """Resolve every drafter that the segments name, as `resolve` does for one.

    Raises:
        RunError: one of them is not in the artifact or does not take that many draft tokens.
    """
    if draft_tokens == 0:
        raise RunError("--draft-tokens 0 is plain decoding, but --spec-policy names drafters; leave out one of the two")
    names = dict.fromkeys(segment.drafter for segment in segments if segment.drafter != NONE)
    candidates = tuple(resolve(SpeculationRequest(name, draft_tokens), manifest, context) for name in names)
    numbers = {candidate.speculation: candidate.draft_tokens for candidate in candidates}
    return SwitchingPlan(candidates, LengthThresholds(segments, numbers), "thresholds of --spec-policy")


def resolve(request: SpeculationRequest, manifest: Manifest, context: RunContext) -> SpeculationPlan:
    """Choose the drafter and the number of draft tokens.

    `auto` takes the first of `KINDS` that the artifact holds, else plain decoding.

    Raises:
        RunError: the drafter asked for is not in the artifact or has no engine for the backend, or the number of draft
            tokens does not fit it.
    """
    if request.speculation == NONE and request.draft_tokens:
        raise RunError("--draft-tokens needs a drafter, but --spec none decodes without one; leave out one of the two")
    if request.speculation == NONE or request.draft_tokens == 0:
        return SpeculationPlan(None, 0, "plain decoding was asked for")
    available = [name for name, kind in KINDS.items() if _has(kind, manifest, context)]
    if request.speculation == AUTO:
        if not available and request.draft_tokens:
            raise RunError("--draft-tokens needs a drafter, but the artifact holds none; build it with --draft")
        if not available:
            return SpeculationPlan(None, 0, "auto: the artifact holds no drafter")
        chosen = available[0]
        reason = f"auto: the artifact holds {' and '.join(available)}"
        reason += f", and {chosen} comes first" if len(available) > 1 else ""
    elif request.speculation in available:
        chosen, reason = request.speculation, f"{request.speculation} was asked for"
    else:
        holds = " and ".join(available) or "no drafter"
        raise RunError(
            f"--spec {request.speculation} is not possible: the artifact holds {holds} for {context.backend};"
            " choose one it holds or build it again with that drafter"
        )
    kind = KINDS[chosen]
    component = _component(kind, manifest)
    assert component is not None
    limits = kind.limits(component)
    draft_tokens = request.draft_tokens or limits.default
    if draft_tokens > limits.most:
        raise RunError(
            f"--draft-tokens {draft_tokens} is more than the {limits.most} that this artifact's {chosen} drafter takes"
        )
    return SpeculationPlan(kind, draft_tokens, reason, kind.stage(component, draft_tokens))


def _has(kind: DrafterKind, manifest: Manifest, context: RunContext) -> bool:
    component = _component(kind, manifest)
    stage = manifest.stages.get(kind.stage(component, 1)) if component is not None else None
    return stage is not None and context.backend in stage.engines


def _component(kind: DrafterKind, manifest: Manifest) -> Component | None:
    return {str(name): component for name, component in manifest.components.items()}.get(kind.name)
