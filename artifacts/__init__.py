"""The artifact format: one directory with a manifest, engines, weights and a tokenizer."""

from dfc.artifacts.calibration import Calibration
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import (
    Build,
    Component,
    ComponentName,
    Engine,
    File,
    Manifest,
    Model,
    Parameter,
    Precision,
    Role,
    Stage,
    Tensor,
    Weight,
    WeightPart,
)
from dfc.artifacts.migration import SCHEMA_VERSION
from dfc.artifacts.reader import Artifact, open_artifact
from dfc.artifacts.verification import verify
from dfc.artifacts.writer import ArtifactWriter, check_replaceable

__all__ = [
    "SCHEMA_VERSION",
    "Artifact",
    "ArtifactError",
    "ArtifactWriter",
    "Build",
    "Calibration",
    "Component",
    "ComponentName",
    "Engine",
    "File",
    "Manifest",
    "Model",
    "Parameter",
    "Precision",
    "Progress",
    "Role",
    "Stage",
    "Tensor",
    "Weight",
    "WeightPart",
    "check_replaceable",
    "open_artifact",
    "verify",
]
