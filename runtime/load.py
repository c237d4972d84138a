"""From a plan to a decoder: only the stages that the plan names are loaded."""

from __future__ import annotations

from dfc.artifacts import Artifact
from dfc.artifacts.tensors import files_of_stages
from dfc.runtime.decode import PREFILL_ROWS, Decoder, PlainDecoder, SpeculativeDecoder
from dfc.runtime.engines import open_engines
from dfc.runtime.plan import Plan, SwitchingPlan
from dfc.runtime.sampling import Sampling
from dfc.runtime.switching import SwitchingDecoder
from dfc.runtime.target import AdvancingTarget, VerifyingTarget


def load_decoder(
    artifact: Artifact,
    plan: Plan,
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


def text_files(artifact: Artifact) -> frozenset[str]:
    """Return the artifact's files that text is encoded, rendered and decoded with."""
    return frozenset(name for name in artifact.manifest.files if name.startswith("tokenizer/"))


def decoder_files(artifact: Artifact, plan: Plan, backend: str, sampling: Sampling | None) -> frozenset[str]:
    """Return the artifact's files that `load_decoder` reads for a plan: engines and weights.

    Raises:
        ArtifactError: an engine is damaged, or reads weights outside the artifact's files.
    """
    stages = [_target_stage(plan, sampling), *plan.draft_stages]
    return files_of_stages(artifact.root, artifact.manifest, stages, backend)


def _target_stage(plan: Plan, sampling: Sampling | None) -> str:
    return plan.target_stage if sampling is None else f"{plan.target_stage}_sampling"


def _assemble(artifact: Artifact, plan: Plan, backend: str, prefill_rows: int, sampling: Sampling | None) -> Decoder:
    open_stage = open_engines(artifact, backend)
    engine = open_stage(_target_stage(plan, sampling))
    if isinstance(plan, SwitchingPlan):
        drafters = {
            candidate.speculation: candidate.drafter.open(open_stage(candidate.draft_stage), candidate.draft_tokens)
            for candidate in plan.candidates
            if candidate.drafter is not None
        }
        return SwitchingDecoder(VerifyingTarget(engine, sampling), drafters, plan.policy, prefill_rows)
    if plan.drafter is None:
        return PlainDecoder(AdvancingTarget(engine, sampling), prefill_rows)
    drafter = plan.drafter.open(open_stage(plan.draft_stage), plan.draft_tokens)
    return SpeculativeDecoder(VerifyingTarget(engine, sampling), drafter, prefill_rows)
