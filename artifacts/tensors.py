"""Where an artifact's engines read weights: inside the artifact's own files, or not at all."""

from collections.abc import Iterable
from pathlib import Path

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.manifest import Manifest
from dfc.artifacts.onnx_header import external_tensors
from dfc.artifacts.paths import printable
from dfc.artifacts.safetensors_header import check_safetensors

WEIGHTS_FOLDER = "weights"
"""What the locations in ONNX engines are relative to."""

MAX_ONNX_BYTES = (1 << 31) - 1
"""No protobuf message is longer."""


def files_of_stages(root: Path, manifest: Manifest, stages: Iterable[str], backend: str) -> frozenset[str]:
    """Return the engines of some stages on a backend and the files of weights that these read.

    A stage that the manifest lacks adds nothing.

    Raises:
        ArtifactError: an engine is damaged, or reads what is not in a listed file of weights.
    """
    files: set[str] = set()
    for stage in stages:
        engines = manifest.stages[stage].engines.get(backend, ()) if stage in manifest.stages else ()
        for engine in engines:
            files.add(engine.path)
            if engine.path.endswith(".onnx"):
                files |= check_engine(root, engine.path, manifest)
            else:
                # Which inputs of the manifest's weights an engine takes only its library knows.
                files.update(part.file for weight in manifest.weights.values() for part in weight.parts)
    return frozenset(files)


def check_file(root: Path, path: str, manifest: Manifest) -> None:
    """Check the tensors that a file says to hold or to read, if its format is one that says so.

    Raises:
        ArtifactError: a tensor lies outside its file, or the file is damaged.
    """
    if path.endswith(".safetensors"):
        check_safetensors(root / path)
    elif path.endswith(".onnx"):
        check_engine(root, path, manifest)


def check_engine(root: Path, path: str, manifest: Manifest) -> frozenset[str]:
    """Check one ONNX engine and return the files of weights that it reads.

    Raises:
        ArtifactError: the engine is damaged, or reads what is not in a listed file of weights.
    """
    return check_model(read_bounded(root / path, MAX_ONNX_BYTES), f"{root}: engine {path}", manifest)


def check_model(data: bytes, what: str, manifest: Manifest) -> frozenset[str]:
    """Check an ONNX model, called `what` in messages, and return the files of weights that it reads.

    Raises:
        ArtifactError: the model is damaged, or reads what is not in a listed file of weights.
    """
    files = set()
    try:
        for tensor in external_tensors(data):
            name = f"{WEIGHTS_FOLDER}/{tensor.location}"
            if name not in manifest.files:
                raise ArtifactError(
                    f"tensor {tensor.name} lies in {printable(tensor.location)}, which is not among the weights"
                )
            if tensor.offset + tensor.length > manifest.files[name].size:
                raise ArtifactError(f"tensor {tensor.name} ends behind the end of {name}")
            files.add(name)
    except ArtifactError as error:
        raise ArtifactError(f"{what} is damaged: {error}; build the artifact again") from None
    return frozenset(files)
