"""From a plan to a decoder: only the stages that the plan names are loaded."""

from __future__ import annotations

from dfc.artifacts import Artifact
from dfc.artifacts.tensors import files_of_stages
from dfc.runtime.batch import AdvancingBatch, Batch, DraftingBatch, VerifyingBatch
from dfc.runtime.decode import PREFILL_ROWS, Decoder, PlainDecoder, SpeculativeDecoder
from dfc.runtime.drafters.kind import Drafter
from dfc.runtime.engine import Engine, OpenStage
from dfc.runtime.engines import open_engines
from dfc.runtime.engines.onnxruntime import BACKEND as ONNXRUNTIME
from dfc.runtime.errors import RunError
from dfc.runtime.plan import Plan, SpeculationPlan, SwitchingPlan
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


def load_batch(artifact: Artifact, plan: Plan, size: int, sampling: Sampling | None = None) -> Batch:
    """Load the plan's engines and return what decodes `size` sequences at once, on onnxruntime.

    Raises:
        RunError: an engine is missing or cannot be loaded, or a policy chooses the drafters.
    """
    if isinstance(plan, SwitchingPlan):
        raise RunError("--spec-policy chooses for one sequence; leave out --batch-size or take --spec")
    engines: dict[str, Engine] = {}
    opened = open_engines(artifact, ONNXRUNTIME)

    def open_once(stage: str) -> Engine:
        if stage not in engines:
            engines[stage] = opened(stage)
        return engines[stage]

    single = _assemble_fixed(open_once, plan, PREFILL_ROWS, sampling)
    target = open_once(_stage(plan.target_stage, sampling))
    if plan.drafter is None:
        return Batch(single, AdvancingBatch(target, size, sampling is not None))
    draft = DraftingBatch(open_once(_stage(plan.draft_stage, sampling)), plan.draft_tokens, size)
    return Batch(single, VerifyingBatch(target, draft, size, sampling is not None))


def text_files(artifact: Artifact) -> frozenset[str]:
    """Return the artifact's files that text is encoded, rendered and decoded with."""
    return frozenset(name for name in artifact.manifest.files if name.startswith("tokenizer/"))


def decoder_files(artifact: Artifact, plan: Plan, backend: str, sampling: Sampling | None) -> frozenset[str]:
    """Return the artifact's files that `load_decoder` reads for a plan: engines and weights.

    Raises:
        ArtifactError: an engine is damaged, or reads weights outside the artifact's files.
    """
    stages = [_stage(name, sampling) for name in (plan.target_stage, *plan.draft_stages)]
    return files_of_stages(artifact.root, artifact.manifest, stages, backend)


def _stage(name: str, sampling: Sampling | None) -> str:
    return name if sampling is None else f"{name}_sampling"


def _open_drafter(open_stage: OpenStage, plan: SpeculationPlan, sampling: Sampling | None) -> Drafter:
    assert plan.drafter is not None
    drafter = plan.drafter.open(open_stage(_stage(plan.draft_stage, sampling)), plan.draft_tokens)
    if sampling is not None:
        drafter.sample_as(sampling)
    return drafter


def _assemble(artifact: Artifact, plan: Plan, backend: str, prefill_rows: int, sampling: Sampling | None) -> Decoder:
    open_stage = open_engines(artifact, backend)
    if isinstance(plan, SwitchingPlan):
        engine = open_stage(_stage(plan.target_stage, sampling))
        drafters = {
            candidate.speculation: _open_drafter(open_stage, candidate, sampling) for candidate in plan.candidates
        }
        return SwitchingDecoder(VerifyingTarget(engine, sampling), drafters, plan.rule.begin(), prefill_rows)
    return _assemble_fixed(open_stage, plan, prefill_rows, sampling)


def _assemble_fixed(
    open_stage: OpenStage, plan: SpeculationPlan, prefill_rows: int, sampling: Sampling | None
) -> PlainDecoder | SpeculativeDecoder:
    engine = open_stage(_stage(plan.target_stage, sampling))
    if plan.drafter is None:
        return PlainDecoder(AdvancingTarget(engine, sampling), prefill_rows)
    drafter = _open_drafter(open_stage, plan, sampling)
    return SpeculativeDecoder(VerifyingTarget(engine, sampling), drafter, prefill_rows)
