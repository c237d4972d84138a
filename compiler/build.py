"""`dfc build`: checkpoints to one artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from dfc.artifacts import (
    ArtifactWriter,
    Build,
    Component,
    ComponentName,
    Engine,
    Manifest,
    Model,
    Stage,
)
from dfc.compiler.checkpoint import DFlash2Spec, TargetSpec, check_fits, draft_kind, load_dflash2, load_target
from dfc.compiler.checkpoint.spec import TensorLocation
from dfc.compiler.engines import BACKENDS, Backend
from dfc.compiler.errors import BuildError
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.models import dflash2, target
from dfc.compiler.models.dflash2 import dflash2_stage
from dfc.compiler.models.mtp import mtp_stage
from dfc.compiler.models.target import TargetOptions, advance_stage, verify_stage

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

DEFAULT_MAX_CONTEXT = 32_768
"""Caches and rotary tables are sized for the context, so the default stops here for models that could go further."""

DEFAULT_MTP_DRAFT_TOKENS = 7
"""Most drafts of an MTP round when the user does not say: each number has a small graph of its own."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")

Report = Callable[[str], None]


@dataclass(frozen=True)
class BuildRequest:
    """What the user asked for."""

    target: Path
    drafts: tuple[Path, ...]
    output: Path
    backend: str = "onnxruntime"
    dtype: Dtype = "auto"
    max_context: int | None = None
    draft_tokens: int | None = None
    force: bool = False


@dataclass(frozen=True)
class BuildPlan:
    """The request against the checkpoints: everything checked, nothing done yet."""

    target: TargetSpec
    dflash2: DFlash2Spec | None
    backend: Backend
    max_context: int
    mtp_draft_tokens: int
    dflash2_draft_tokens: int

    @property
    def capacity(self) -> int:
        """Cache rows a sequence: the last round may reach past the context by its drafts."""
        return self.max_context + self.round_rows

    @property
    def round_rows(self) -> int:
        """Most rows of a round: the anchor and its drafts."""
        return 1 + max(self.mtp_draft_tokens, self.dflash2_draft_tokens)


def build_artifact(request: BuildRequest, report: Report = lambda line: None) -> Manifest:
    """Build an artifact and return its manifest; `report` gets a line for each step.

    Raises:
        CheckpointError: a checkpoint is damaged, cannot be built, or the drafter does not go with the target.
        BuildError: an option does not fit.
        ArtifactError: the output cannot be written.
    """
    plan = plan_build(request)
    with ArtifactWriter(request.output, force=request.force) as writer:
        stages: dict[str, Stage] = {}
        for stage in _stage_graphs(plan):
            report(f"stage {stage.name}")
            stages[stage.name] = _write_stage(writer, stage, request.backend, plan.backend)
        report("weights")
        _add_weights(writer, target.WEIGHTS_FOLDER, plan.target.tensors)
        if plan.dflash2 is not None:
            _add_weights(writer, dflash2.WEIGHTS_FOLDER, plan.dflash2.tensors)
        for name in TOKENIZER_FILES:
            file = plan.target.directory / name
            if file.is_file():
                writer.add_bytes(f"tokenizer/{name}", file.read_bytes())
        report("manifest")
        return writer.commit(_manifest(request, plan, stages))


def plan_build(request: BuildRequest) -> BuildPlan:
    """Read the checkpoints' headers and check the request against them.

    Raises:
        CheckpointError: a checkpoint is damaged, cannot be built, or the drafter does not go with the target.
        BuildError: an option does not fit.
    """
    backend = BACKENDS[request.backend]
    if request.dtype not in ("auto", "float32"):
        raise BuildError(
            f"--dtype {request.dtype} is not possible with --backend {request.backend}, which computes in float32 from"
            " the weights as stored; leave it out or give float32"
        )
    spec = load_target(request.target)
    drafter = _load_drafter(request.drafts, spec)
    limit = spec.max_position_embeddings
    max_context = request.max_context or min(limit, DEFAULT_MAX_CONTEXT)
    if max_context > limit:
        raise BuildError(
            f"--max-context {max_context} is more than the target's max_position_embeddings {limit}; give at most that"
        )
    asked = request.draft_tokens
    if asked is not None and spec.mtp is None and drafter is None:
        raise BuildError(
            f"--draft-tokens needs a drafter, but {spec.directory} has no MTP head and no --draft is given"
        )
    block = 0 if drafter is None else drafter.block_size - 1
    return BuildPlan(
        target=spec,
        dflash2=drafter,
        backend=backend,
        max_context=max_context,
        mtp_draft_tokens=0 if spec.mtp is None else asked or DEFAULT_MTP_DRAFT_TOKENS,
        dflash2_draft_tokens=min(block, asked or block),
    )


def _load_drafter(directories: tuple[Path, ...], spec: TargetSpec) -> DFlash2Spec | None:
    loaded: DFlash2Spec | None = None
    for directory in directories:
        kind = draft_kind(directory)
        if loaded is not None:
            raise BuildError(f"--draft {directory} is a second {kind} drafter; an artifact holds one of each kind")
        loaded = load_dflash2(directory)
        check_fits(loaded, spec)
    return loaded


def _stage_graphs(plan: BuildPlan) -> Iterator[StageGraph]:
    """Author the stages one after the other, so that only one graph is in memory."""
    spec, drafter = plan.target, plan.dflash2
    options = TargetOptions(
        capacity=plan.capacity,
        round_rows=plan.round_rows,
        hidden_output=spec.mtp is not None,
        feature_layers=() if drafter is None else drafter.target_layer_ids,
    )
    yield advance_stage(spec, options)
    if spec.mtp is not None or drafter is not None:
        yield verify_stage(spec, options)
    for draft_tokens in range(1, plan.mtp_draft_tokens + 1):
        yield mtp_stage(spec, plan.capacity, draft_tokens)
    if drafter is not None:
        yield dflash2_stage(drafter, spec, plan.capacity)


def _write_stage(writer: ArtifactWriter, stage: StageGraph, backend_name: str, backend: Backend) -> Stage:
    path = f"stages/{stage.name}/{backend_name}/{backend.file_name}"
    writer.add_bytes(path, backend.compile_stage(stage))
    engine = Engine(path=path, precision="float32", library=backend.library, library_version=backend.library_version)
    return Stage(
        component=stage.component, inputs=stage.inputs, outputs=stage.outputs, engines={backend_name: (engine,)}
    )


def _add_weights(writer: ArtifactWriter, folder: str, tensors: dict[str, TensorLocation]) -> None:
    for file in sorted({location.file for location in tensors.values()}):
        writer.add_file(f"weights/{folder}/{file.name}", file)


def _manifest(request: BuildRequest, plan: BuildPlan, stages: dict[str, Stage]) -> Manifest:
    spec, drafter = plan.target, plan.dflash2
    source = spec.directory.resolve().name
    components: dict[ComponentName, Component] = {
        "target": Component(source=source, parameters={"capacity": plan.capacity})
    }
    if spec.mtp is not None:
        components["mtp"] = Component(source=source, parameters={"draft_tokens": plan.mtp_draft_tokens})
    if drafter is not None:
        components["dflash2"] = Component(
            source=drafter.directory.resolve().name,
            parameters={
                "draft_tokens": plan.dflash2_draft_tokens,
                "block_size": drafter.block_size,
                "target_layer_ids": drafter.target_layer_ids,
            },
        )
    return Manifest(
        model=Model(
            name=source,
            architecture=spec.architecture,
            hidden_size=spec.hidden_size,
            vocab_size=spec.vocab_size,
            num_layers=len(spec.layer_types),
            max_context=plan.max_context,
            eos_token_ids=spec.eos_token_ids,
            candidate_vocab_size=spec.candidate_vocab_size,
        ),
        precision="float32",
        backends=(request.backend,),
        components=components,
        stages=stages,
        build=Build(
            options={
                "backend": request.backend,
                "dtype": request.dtype,
                "max_context": str(plan.max_context),
                "draft_tokens": str(request.draft_tokens or "default"),
            },
            tools={name: version(name) for name in ("dfc", "onnx", "onnx-ir", "onnxscript")},
        ),
    )
