"""`dfc build`: checkpoints to one artifact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
    Weight,
    WeightPart,
    check_replaceable,
)
from dfc.artifacts.turns import only_build
from dfc.artifacts.writer import make_parent
from dfc.compiler.build_log import LOG_NAME, build_log
from dfc.compiler.checkpoint import TargetSpec, load_target
from dfc.compiler.checkpoint.origin import find_origin
from dfc.compiler.context import find_max_context
from dfc.compiler.conversion import CONVERTED, Conversion, checkpoint_files, plan_conversion
from dfc.compiler.engines import BACKENDS
from dfc.compiler.engines.backend import Backend, EngineOptions, EngineRequest, Report
from dfc.compiler.engines.shapes import padded_capacity
from dfc.compiler.errors import BuildError
from dfc.compiler.export.stage import StageGraph, dtype_name
from dfc.compiler.models import mtp, target
from dfc.compiler.models.choice import CHOICES
from dfc.compiler.models.drafter import DrafterBuild, StageSizes
from dfc.compiler.models.drafters import load_drafter
from dfc.compiler.models.target import TargetOptions, advance_stage, verify_stage
from dfc.compiler.passes.tensorrt.weight_inputs import WeightInput
from dfc.compiler.quantising import Quantisation, quantise
from dfc.compiler.stage_cache import CompiledStage, StageCache, stage_key

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

FLAGS = {
    "compute_capabilities": "--compute-capability",
    "workspace": "--workspace",
    "optimization_level": "--opt-level",
}
"""The flag of each engine option, for messages."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


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
    options: EngineOptions = field(default_factory=EngineOptions)
    force: bool = False
    cache: Path | None = None
    """Directory of compiled stages to take from and to add to; None compiles everything."""
    no_mtp: bool = False
    quantisation: Quantisation | None = None
    """How to store the weights of a plain checkpoint; None: as they are."""


@dataclass(frozen=True)
class BuildPlan:
    """The request against the checkpoints: everything checked, nothing done yet."""

    target: TargetSpec
    drafters: tuple[DrafterBuild, ...]
    backend: Backend
    max_context: int
    conversion: Conversion | None = None

    @property
    def round_rows(self) -> int:
        """Most rows of a round: the anchor and its drafts."""
        return 1 + max((drafter.draft_tokens for drafter in self.drafters), default=0)

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Target layers whose outputs the drafters read, each once: one verified block serves all of them."""
        return tuple(dict.fromkeys(layer for drafter in self.drafters for layer in drafter.feature_layers))

    @property
    def candidates(self) -> int:
        """Candidates of a slot of a sampled proposal: one verification serves all drafters."""
        return max((drafter.candidates for drafter in self.drafters), default=0)

    @property
    def capacity(self) -> int:
        """Cache rows a sequence: the last round may reach past the context by its drafts, padding by a chunk."""
        rows = self.max_context + self.round_rows
        return padded_capacity(rows) if self.backend.prompt_rows else rows


def build_artifact(
    request: BuildRequest, report: Report = lambda line: None, progress: Report = lambda line: None
) -> Manifest:
    """Build an artifact and return its manifest.

    `report` gets a line for each step, `progress` what a library does in it, many times a second and from any thread.

    While another process builds the same output, this one waits.

    Raises:
        CheckpointError: a checkpoint is damaged, cannot be built, or the drafter does not go with the target.
        BuildError: an option does not fit.
        ArtifactError: the output cannot be written.
    """
    check_replaceable(request.output, force=request.force)
    plan = plan_build(request)
    make_parent(request.output)
    turn = only_build(request.output, lambda: report(f"waiting for another build of {request.output}"))
    with turn, ArtifactWriter(request.output, force=request.force) as writer:
        if plan.conversion is not None:
            plan.conversion.write(writer.path(f"weights/{target.WEIGHTS_FOLDER}/{CONVERTED}"), report)
        stages: dict[str, Stage] = {}
        weights: dict[str, Weight] = {}
        with build_log(writer.path(LOG_NAME), request.output) as log:
            for stage in author_stages(plan):
                stages[stage.name] = _write_stage(writer, stage, request, plan, weights, log, report, progress)
        report("weights")
        _add_weights(writer, target.WEIGHTS_FOLDER, checkpoint_files(plan.target))
        for drafter in plan.drafters:
            _add_weights(writer, drafter.weights_folder, sorted({place.file for place in drafter.tensors.values()}))
        for name in TOKENIZER_FILES:
            file = plan.target.directory / name
            if file.is_file():
                writer.add_bytes(f"tokenizer/{name}", file.read_bytes())
        report("manifest")
        return writer.commit(_manifest(request, plan, stages, weights))


def plan_build(request: BuildRequest) -> BuildPlan:
    """Read the checkpoints' headers and check the request against them.

    Raises:
        CheckpointError: a checkpoint is damaged, cannot be built, or the drafter does not go with the target.
        BuildError: an option does not fit.
    """
    backend = BACKENDS[request.backend]
    if request.dtype not in ("auto", backend.precision):
        raise BuildError(
            f"--dtype {request.dtype} is not possible with --backend {request.backend}, which computes in"
            f" {backend.precision} from the weights as stored; leave it out or give {backend.precision}"
        )
    for option, value in vars(request.options).items():
        if value not in (None, ()) and option not in backend.supports:
            flag = FLAGS[option]
            raise BuildError(f"{flag} means nothing to --backend {request.backend}; leave it out")
    spec, conversion = plan_conversion(_find_target(request, backend))
    drafters = _find_drafters(request, spec, one_stage=bool(backend.prompt_rows))
    max_context = find_max_context(request.max_context, spec, drafters)
    if request.draft_tokens is not None and not drafters:
        raise BuildError("--draft-tokens needs a drafter: no --draft is given, and no MTP head is used")
    return BuildPlan(spec, drafters, backend, max_context, conversion)


def _find_target(request: BuildRequest, backend: Backend) -> TargetSpec:
    spec, asked = load_target(request.target), request.quantisation
    if (spec.quantised or asked) and backend.precision != "float32":
        what = "--quantize makes" if asked else f"{spec.directory} has"
        raise BuildError(
            f"{what} quantised weights, which --backend {request.backend} does not read; build for onnxruntime"
        )
    return spec if asked is None else quantise(spec, asked)


def _find_drafters(request: BuildRequest, spec: TargetSpec, *, one_stage: bool) -> tuple[DrafterBuild, ...]:
    head = None if request.no_mtp else mtp.find_drafter(spec, request.draft_tokens, one_stage=one_stage)
    found = [] if head is None else [head]
    for directory in request.drafts:
        drafter = load_drafter(directory, spec, request.draft_tokens)
        if any(drafter.component == other.component for other in found):
            raise BuildError(
                f"--draft {directory} is a second {drafter.component} drafter; an artifact holds one of each kind"
            )
        found.append(drafter)
    return tuple(found)


def author_stages(plan: BuildPlan) -> Iterator[StageGraph]:
    """Author the stages one after the other, so that only one graph is in memory."""
    options = TargetOptions(
        capacity=plan.capacity,
        round_rows=plan.round_rows,
        padded=bool(plan.backend.prompt_rows),
        hidden_output=any(drafter.reads_hidden for drafter in plan.drafters),
        feature_layers=plan.feature_layers,
        candidates=plan.candidates,
    )
    for choice in CHOICES:
        yield advance_stage(plan.target, options, choice)
        if plan.drafters:
            yield verify_stage(plan.target, options, choice)
    sizes = StageSizes(plan.capacity, plan.feature_layers, plan.candidates)
    for drafter in plan.drafters:
        yield from drafter.stages(sizes)


def _write_stage(
    writer: ArtifactWriter,
    stage: StageGraph,
    request: BuildRequest,
    plan: BuildPlan,
    weights: dict[str, Weight],
    log: Path,
    report: Report,
    progress: Report,
) -> Stage:
    """Write a stage's engines and add the weights that they take as inputs to `weights`."""
    sizes = EngineRequest(plan.round_rows, plan.capacity, request.options, log, progress)
    compiled = _recall_or_compile(stage, sizes, request, plan, report)
    for path, data in compiled.files.items():
        writer.add_bytes(path, data)
    weights.update(compiled.weights)
    return Stage(
        component=stage.component,
        inputs=stage.inputs,
        outputs=stage.outputs,
        engines={request.backend: compiled.engines},
    )


def _recall_or_compile(
    stage: StageGraph, sizes: EngineRequest, request: BuildRequest, plan: BuildPlan, report: Report
) -> CompiledStage:
    if request.cache is None:
        return _compile_stage(stage, sizes, request, plan, report)
    # The key comes first: compiling uses the graph up.
    cache, key = StageCache(request.cache), stage_key(stage, plan.backend, request.backend, sizes)
    compiled = cache.recall(key)
    if compiled is not None:
        report(f"unchanged stage {stage.name}")
        return compiled
    compiled = _compile_stage(stage, sizes, request, plan, report)
    # Before the next stage begins: a build that is interrupted there goes on from here.
    cache.keep(key, compiled)
    return compiled


def _compile_stage(
    stage: StageGraph, sizes: EngineRequest, request: BuildRequest, plan: BuildPlan, report: Report
) -> CompiledStage:
    engines: list[Engine] = []
    weights: dict[str, Weight] = {}
    files: dict[str, bytes] = {}
    for compiled in plan.backend.compile_stage(stage, sizes, report):
        path = f"stages/{stage.name}/{request.backend}/{compiled.file_name}"
        files[path] = compiled.data
        engine = Engine(
            path=path,
            precision=plan.backend.precision,
            library=plan.backend.library,
            library_version=plan.backend.library_version(),
            compute_capabilities=request.options.compute_capabilities,
            sizes=dict(compiled.sizes),
        )
        engines.append(engine)
        weights.update((weight.name, _weight(weight)) for weight in compiled.weights)
    return CompiledStage(tuple(engines), weights, files)


def _weight(weight: WeightInput) -> Weight:
    parts = tuple(
        WeightPart(
            file=f"weights/{part.location}",
            offset=part.offset or 0,
            length=part.length or part.nbytes,
            dtype=dtype_name(part.dtype),
        )
        for part in weight.parts
    )
    return Weight(dtype=dtype_name(weight.dtype), shape=weight.shape, parts=parts)


def _add_weights(writer: ArtifactWriter, folder: str, files: Iterable[Path]) -> None:
    for file in files:
        writer.add_file(f"weights/{folder}/{file.name}", file)


def _manifest(request: BuildRequest, plan: BuildPlan, stages: dict[str, Stage], weights: dict[str, Weight]) -> Manifest:
    spec = plan.target
    components: dict[ComponentName, Component] = {
        "target": Component(
            source=_name(spec.directory), origin=find_origin(spec.directory), parameters={"capacity": plan.capacity}
        )
    }
    for drafter in plan.drafters:
        components[drafter.component] = Component(
            source=_name(drafter.source), origin=find_origin(drafter.source), parameters=dict(drafter.parameters)
        )
    return Manifest(
        model=Model(
            name=_name(spec.directory),
            architecture=spec.architecture,
            hidden_size=spec.hidden_size,
            vocab_size=spec.vocab_size,
            num_layers=len(spec.layer_types),
            max_context=plan.max_context,
            eos_token_ids=spec.eos_token_ids,
            candidate_vocab_size=spec.candidate_vocab_size,
        ),
        precision=plan.backend.precision,
        backends=(request.backend,),
        components=components,
        stages=stages,
        weights=weights,
        build=Build(
            options={
                "backend": request.backend,
                "dtype": request.dtype,
                "max_context": str(plan.max_context),
                "draft_tokens": str(request.draft_tokens or "default"),
                **(request.quantisation.options if request.quantisation else {}),
                **_engine_options(request.options),
            },
            tools={name: version(name) for name in ("dfc", "onnx", "onnx-ir", "onnxscript")},
        ),
    )


def _engine_options(options: EngineOptions) -> dict[str, str]:
    """Return the options that were given, as the manifest records them."""
    given = {name: value for name, value in vars(options).items() if value not in (None, ())}
    return {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in given.items()}


def _name(directory: Path) -> str:
    """Return a checkpoint's name; where it lies differs between machines."""
    return directory.resolve().name
