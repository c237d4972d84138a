"""The OCI manifest of an artifact: one layer for a file, its path as the title."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.manifest import File, Manifest
from dfc.artifacts.paths import MANIFEST_NAME, check_relative, printable
from dfc.artifacts.publishing.contents import UNLISTED
from dfc.artifacts.publishing.errors import PublishingError

ARTIFACT_TYPE: Final = "application/vnd.dfc.artifact.v1"
LAYER_TYPE: Final = "application/vnd.dfc.artifact.file.v1"
MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
TITLE: Final = "org.opencontainers.image.title"

EMPTY: Final = b"{}"
"""The content of the config, which every manifest must have and an artifact does not need."""

EMPTY_TYPE: Final = "application/vnd.oci.empty.v1+json"

MAX_BYTES: Final = 4 << 20
"""What registries take at most for a manifest."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class _Described(BaseModel):
    # Registries and other tools may add fields.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    digest: Digest
    size: int = Field(ge=0)


class _Layer(_Described):
    annotations: dict[str, str]


class _OciManifest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    schema_version: Literal[2] = Field(alias="schemaVersion")
    artifact_type: str = Field(alias="artifactType", default="")
    layers: list[_Layer]


def sha256(content: bytes) -> str:
    """Return the digest as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def write(files: Mapping[str, File]) -> bytes:
    """Return the text for the files of an artifact, `manifest.json` among them: equal files give equal bytes."""
    layers = [
        {
            "mediaType": LAYER_TYPE,
            "digest": f"sha256:{file.sha256}",
            "size": file.size,
            "annotations": {TITLE: name},
        }
        for name, file in sorted(files.items())
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": MEDIA_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "config": {"mediaType": EMPTY_TYPE, "digest": sha256(EMPTY), "size": len(EMPTY)},
        "layers": layers,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def read(text: bytes, source: str) -> dict[str, File]:
    """Return the files that a manifest lists, by their paths; `source` is its name in messages.

    Raises:
        PublishingError: it is not the manifest of an artifact, a path leaves the artifact or is there twice, or
            there is no `manifest.json`.
    """
    try:
        document = _OciManifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = printable(".".join(map(str, first["loc"]))) or "text"
        raise PublishingError(
            f"{source} is no dfc artifact: {field} of its manifest: {printable(first['msg'])}"
        ) from None
    if document.artifact_type != ARTIFACT_TYPE:
        kind = printable(document.artifact_type) or "none"
        raise PublishingError(f"{source} is no dfc artifact: its artifactType is {kind}, not {ARTIFACT_TYPE}")
    files: dict[str, File] = {}
    for layer in document.layers:
        name = layer.annotations.get(TITLE, "")
        try:
            check_relative(name)
        except ArtifactError as error:
            raise PublishingError(f"{source} is refused: the title {printable(str(error))}") from None
        if name in files:
            raise PublishingError(f"{source} is refused: it has two layers for {printable(name)}")
        files[name] = File(sha256=layer.digest.removeprefix("sha256:"), size=layer.size)
    if MANIFEST_NAME not in files:
        raise PublishingError(f"{source} is refused: it has no layer for {MANIFEST_NAME}")
    for name, limit in UNLISTED.items():
        if name in files and files[name].size > limit:
            raise PublishingError(f"{source} is refused: {name} has {files[name].size} bytes, more than {limit}")
    return files


def check_layers(layers: Mapping[str, File], manifest: Manifest, source: str) -> None:
    """Check that the layers are the files which the artifact's own manifest lists.

    Raises:
        PublishingError: a file is missing, not listed, or another one.
    """
    files = {name: file for name, file in layers.items() if name not in UNLISTED}
    for name in sorted(files.keys() ^ manifest.files.keys()):
        problem = "is not listed in the artifact's manifest" if name in files else "is missing among its layers"
        raise PublishingError(f"{source} is refused: {printable(name)} {problem}")
    for name, file in sorted(files.items()):
        if file != manifest.files[name]:
            raise PublishingError(f"{source} is refused: the layer of {printable(name)} is not the file listed")
