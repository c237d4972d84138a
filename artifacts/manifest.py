"""The manifest: what an artifact holds, how its stages are called, and what it was built from and with."""

import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.calibration import Calibration
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.frozen import Frozen
from dfc.artifacts.migration import SCHEMA_VERSION, STEPS, migrate
from dfc.artifacts.paths import check_relative, printable

MAX_MANIFEST_BYTES: Final = 16 << 20
"""Ten times what the largest model needs: a damaged or hostile file must not cost memory."""

MAX_RANK: Final = 32

_ITEM_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int64": 64, "int32": 32, "int8": 8, "uint8": 8, "bool": 8}

ComponentName = Literal["target", "mtp", "dflash2", "dflash"]
Precision = Literal["float32", "bfloat16", "float16"]
Role = Literal["input", "output", "cache", "state"]
Parameter = bool | int | float | str | tuple[int, ...] | None


def _relative(value: str) -> str:
    try:
        return check_relative(value)
    except ArtifactError as error:
        raise ValueError(str(error)) from None


def _basename(value: str) -> str:
    # A checkpoint's location would differ between machines and break byte-identical builds.
    if not value or "/" in value:
        raise ValueError("a directory's last name is wanted here, without any '/'")
    return value


def _portable(value: Parameter) -> Parameter:
    if isinstance(value, str) and (value.startswith(("/", "~/", "file:")) or "=/" in value):
        raise ValueError(f"the absolute path {value} differs between machines and may not be in a manifest")
    return value


RelativePath = Annotated[str, AfterValidator(_relative)]
Basename = Annotated[str, AfterValidator(_basename)]
Options = dict[str, Annotated[str, AfterValidator(_portable)]]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Dimension = Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1)]


class File(Frozen):
    """Digest and length of one file of the artifact."""

    sha256: Sha256
    size: int = Field(ge=0)


class Model(Frozen):
    """Identity of the target model."""

    name: Basename
    architecture: str
    hidden_size: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    num_layers: int = Field(gt=0)
    max_context: int = Field(gt=0)
    eos_token_ids: tuple[int, ...]
    candidate_vocab_size: int = Field(gt=0)


class Tensor(Frozen):
    """One input or output of a stage.

    A string in `shape` is a symbolic dimension. `alias` is set on outputs only: it names the input that the output
    follows, in the same buffer for a cache and as the next round's value for a state.
    """

    name: str = Field(min_length=1)
    dtype: str = Field(min_length=1)
    shape: tuple[Dimension, ...]
    alias: str | None = None
    role: Role


class WeightPart(Frozen):
    """Bytes of one tensor in a file of the artifact; they are converted when `dtype` is not the weight's."""

    file: RelativePath
    offset: int = Field(ge=0)
    length: int = Field(ge=0)
    dtype: str = Field(min_length=1)


class Weight(Frozen):
    """What an engine of static shape reads as an input: parts that lie one behind the other."""

    dtype: str = Field(min_length=1)
    shape: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(max_length=MAX_RANK)
    parts: tuple[WeightPart, ...]


class Engine(Frozen):
    """One compiled form of a stage, for one backend and precision.

    `sizes` are the symbolic dimensions of the stage that are fixed in it, and `context`, the cache rows it looks at.
    """

    path: RelativePath
    precision: Precision
    library: str
    library_version: str
    compute_capabilities: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    options: Options = {}


class Stage(Frozen):
    """What one call of a stage takes and gives, and the engines that compute it, by backend."""

    component: ComponentName
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    engines: dict[str, tuple[Engine, ...]]

    @model_validator(mode="after")
    def _check_tensors(self) -> Self:
        names = {tensor.name for tensor in self.inputs}
        for tensors in (self.inputs, self.outputs):
            if len({tensor.name for tensor in tensors}) != len(tensors):
                raise ValueError("two inputs or two outputs have the same name")
        for tensor in self.inputs:
            if tensor.alias is not None:
                raise ValueError(f"input {tensor.name} has an alias, which only outputs may have")
        for tensor in self.outputs:
            if tensor.alias is not None and tensor.alias not in names:
                raise ValueError(f"output {tensor.name} is an alias of {tensor.alias}, which is not an input")
        return self


class Origin(Frozen):
    """The public repository, as `owner/name`, and the revision that a checkpoint was fetched from."""

    repository: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")


class Component(Frozen):
    """One checkpoint that went into the artifact, with the parameters that the runtime needs."""

    source: Basename
    origin: Origin | None = None
    parameters: dict[str, Annotated[Parameter, AfterValidator(_portable)]] = {}


class Build(Frozen):
    """How the artifact was built: nothing that differs between two builds of the same input."""

    options: Options = {}
    tools: Options = {}


class Manifest(Frozen):
    """The content of `manifest.json`.

    The compiler leaves `files` empty: `ArtifactWriter.commit` fills it from what was written. `content_sha256` is the
    digest of this text with null in its own place (see `sealed`): it shows damage, not who wrote the manifest.
    `calibration` holds what was measured, by the name of the device.

    A new field with a default needs no other `schema_version` (see `migration`).
    """

    schema_version: Literal[3] = SCHEMA_VERSION
    content_sha256: Sha256 | None = None
    model: Model
    precision: Precision
    backends: tuple[str, ...]
    components: dict[ComponentName, Component]
    stages: dict[str, Stage]
    weights: dict[str, Weight] = {}
    files: dict[RelativePath, File] = {}
    calibration: dict[Annotated[str, Field(min_length=1)], Calibration] = {}
    build: Build = Build()

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        for name, stage in self.stages.items():
            if stage.component not in self.components:
                raise ValueError(f"stage {name} belongs to the component {stage.component}, which is not listed")
            for backend, engines in stage.engines.items():
                if backend not in self.backends:
                    raise ValueError(f"stage {name} has an engine for {backend}, which is not listed in backends")
                for engine in engines:
                    self._check_listed(engine.path, f"stage {name} names the engine {engine.path}")
        for name, weight in self.weights.items():
            self._check_weight(name, weight)
        for device, calibration in self.calibration.items():
            for drafter in calibration.drafters:
                if drafter not in self.components:
                    raise ValueError(f"the calibration of {device} has {drafter}, which is not listed in components")
        return self

    def _check_listed(self, path: str, what: str) -> None:
        if self.files and path not in self.files:
            raise ValueError(f"{what}, which is not listed in files")

    def _check_weight(self, name: str, weight: Weight) -> None:
        """Check that a weight's parts lie inside their files and fill its shape: a loader copies them unseen."""
        items = 0
        for part in weight.parts:
            self._check_listed(part.file, f"weight {name} lies in {part.file}")
            if self.files and part.offset + part.length > self.files[part.file].size:
                raise ValueError(f"weight {name} ends behind the end of {part.file}")
            items += part.length * 8 // _ITEM_BITS.get(part.dtype, 8)
        known = {weight.dtype, *(part.dtype for part in weight.parts)} <= _ITEM_BITS.keys()
        if known and items != math.prod(weight.shape):
            raise ValueError(f"weight {name} of shape {list(weight.shape)} has parts of {items} elements")

    def _has_engines(self) -> bool:
        return any(engines for stage in self.stages.values() for engines in stage.engines.values())

    def with_files(self, files: dict[str, File]) -> "Manifest":
        """Return this manifest with `files` as its list of files.

        Raises:
            ArtifactError: a path leaves the artifact, or an engine is not among the files.
        """
        if not files and self._has_engines():
            raise ArtifactError("the manifest names engines, but no file was written")
        try:
            return Manifest.model_validate({**dict(self), "files": files})
        except ValidationError as error:
            raise ArtifactError(f"the manifest does not fit the files written: {_first_problem(error)}") from None

    def with_calibration(self, calibration: dict[str, Calibration]) -> "Manifest":
        """Return this manifest with other calibrations."""
        return Manifest.model_validate({**dict(self), "calibration": calibration})

    def sealed(self) -> "Manifest":
        """Return this manifest with the digest of its own text in it."""
        text = self.model_copy(update={"content_sha256": None}).to_json().encode()
        return self.model_copy(update={"content_sha256": hashlib.sha256(text).hexdigest()})

    def is_whole(self, text: bytes) -> bool:
        """Return whether `text`, which this manifest was read from, is what was sealed, byte for byte."""
        entry = f'"content_sha256": "{self.content_sha256}"'.encode()
        return self.content_sha256 == hashlib.sha256(text.replace(entry, b'"content_sha256": null', 1)).hexdigest()

    def to_json(self) -> str:
        """Return the canonical text: equal manifests give equal bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def load(cls, path: Path) -> "Manifest":
        """Read a manifest file of this version of the schema or an earlier one.

        Raises:
            ArtifactError: the file cannot be read, is not a manifest, or comes from a newer dfc.
        """
        try:
            text = read_bounded(path, MAX_MANIFEST_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise ArtifactError(f"{path} is not UTF-8 text") from None
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{path} is not JSON: {error}") from None
        version = content.get("schema_version") if isinstance(content, dict) else None
        if type(version) is int and version > SCHEMA_VERSION:
            raise ArtifactError(
                f"{path} was built by a newer dfc: its schema_version is {version} and this dfc reads {SCHEMA_VERSION}"
            )
        if version is None:
            raise ArtifactError(f"{path} is not a dfc manifest: it has no schema_version")
        # To pydantic, 2.0 is the literal 2.
        if type(version) is not int:
            raise ArtifactError(f"{path} is not a valid dfc manifest: field schema_version is not a whole number")
        if version < SCHEMA_VERSION and version not in STEPS:
            raise ArtifactError(f"{path} is not a valid dfc manifest: no dfc wrote schema_version {version}")
        try:
            if version < SCHEMA_VERSION:
                text = json.dumps(migrate(content, version))
            manifest = cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            raise ArtifactError(f"{path} is not a valid dfc manifest: {_first_problem(error)}") from None
        except RecursionError as error:
            raise ArtifactError(f"{path} is not JSON: {error}") from None
        if not manifest.files and manifest._has_engines():
            raise ArtifactError(f"{path} is not a valid dfc manifest: field files: it names engines but lists no file")
        return manifest


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    reason = printable(first["msg"].removeprefix("Value error, "))
    if first["type"] == "extra_forbidden":
        reason = "this dfc does not know it; a newer one may have written it"
    # A file's name is a part of the field's name and may hold anything.
    field = printable(".".join(map(str, first["loc"])))
    return f"field {field}: {reason}" if field else reason
