"""From a plan to a decoder: only the stages that the plan names are loaded."""

from __future__ import annotations

from dfc.artifacts import Artifact
from dfc.runtime.decode import PREFILL_ROWS, Decoder, PlainDecoder, SpeculativeDecoder
from dfc.runtime.engines import open_engines
from dfc.runtime.plan import SpeculationPlan
from dfc.runtime.sampling import Sampling
from dfc.runtime.target import AdvancingTarget, VerifyingTarget


def load_decoder(
    artifact: Artifact,
    plan: SpeculationPlan,
    backend: str,
    prefill_rows: int = PREFILL_ROWS,
    sampling: Sampling | None = None,
) -> Decoder:
    """Load the plan's engines and return a decoder for one sequence, warmed up; without `sampling` it is greedy.

    Raises:
        RunError: an engine is missing or cannot be loaded.
    """
    decoder = _assemble(artifact, plan, backend, prefill_rows, sampling)
    decoder.warm_up()
    return decoder


def _assemble(
    artifact: Artifact, plan: SpeculationPlan, backend: str, prefill_rows: int, sampling: Sampling | None
) -> Decoder:
    open_stage = open_engines(artifact, backend)
    engine = open_stage(plan.target_stage if sampling is None else f"{plan.target_stage}_sampling")
    if plan.drafter is None:
        return PlainDecoder(AdvancingTarget(engine, sampling), prefill_rows)
    drafter = plan.drafter.open(open_stage(plan.draft_stage), plan.draft_tokens)
    return SpeculativeDecoder(VerifyingTarget(engine, sampling), drafter, prefill_rows)
