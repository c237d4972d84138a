"""An SPDX 2.3 document of an artifact: its files, the checkpoints they come from, and the tools that built it."""

import hashlib
import io
import os
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dfc.artifacts.bounded import open_regular
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress
from dfc.artifacts.manifest import Manifest, Origin
from dfc.artifacts.paths import CONVERTED_NAME, printable
from dfc.artifacts.publishing.contents import list_contents
from dfc.artifacts.reader import Artifact

if TYPE_CHECKING:
    from spdx_tools.spdx.model import Document, File, Package

_BLOCK_BYTES = 1 << 20
_ARTIFACT = "SPDXRef-artifact"


def write_sbom(artifact: Artifact, created: datetime | None = None, progress: Progress | None = None) -> str:
    """Return the document as JSON; every file is read, for SPDX asks for its SHA-1 beside the manifest's SHA-256.

    `created` is `SOURCE_DATE_EPOCH` when that is set and now otherwise. All else follows from the artifact.

    Raises:
        ArtifactError: a file is not what the manifest lists, `SOURCE_DATE_EPOCH` is no number, or the library for
            SPDX is not installed.
    """
    try:
        from spdx_tools.spdx.writer.json.json_writer import write_document_to_stream
    except ImportError as error:
        raise ArtifactError(f"SPDX documents need {error.name}; install dfc with the extra 'publish'") from None
    stream = io.StringIO()
    write_document_to_stream(describe(artifact, created or _now(), progress), stream, validate=False)
    return stream.getvalue() + "\n"


def describe(artifact: Artifact, created: datetime, progress: Progress | None = None) -> "Document":
    """Return the document of an artifact, every file of which is read.

    Raises:
        ArtifactError: a file is not what the manifest lists.
    """
    from spdx_tools.spdx.model import Actor, ActorType, CreationInfo, Document, Relationship, RelationshipType

    manifest = artifact.manifest
    files = _files(artifact, progress)
    whole = _package(_ARTIFACT, manifest.model.name, None, files.values())
    own = {name: _weights(files, name) for name in manifest.components}
    checkpoints = {
        name: _package(f"SPDXRef-checkpoint-{name}", component.source, component.origin, own[name])
        for name, component in manifest.components.items()
        if own[name]
    }
    tools = [_tool(f"SPDXRef-tool-{name}", name, version) for name, version in sorted(manifest.build.tools.items())]
    libraries = [_tool(f"SPDXRef-library-{name}", name, version) for name, version in _libraries(manifest)]
    relations = [Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, _ARTIFACT)]
    relations += [Relationship(_ARTIFACT, RelationshipType.CONTAINS, file.spdx_id) for file in files.values()]
    for name, package in checkpoints.items():
        relations.append(Relationship(_ARTIFACT, RelationshipType.GENERATED_FROM, package.spdx_id))
        relations += [Relationship(package.spdx_id, RelationshipType.CONTAINS, file.spdx_id) for file in own[name]]
        written = files.get(f"./weights/{name}/{CONVERTED_NAME}")
        if written is not None:
            relations.append(Relationship(written.spdx_id, RelationshipType.GENERATED_FROM, package.spdx_id))
    relations += [Relationship(tool.spdx_id, RelationshipType.BUILD_TOOL_OF, _ARTIFACT) for tool in tools]
    relations += [
        Relationship(library.spdx_id, RelationshipType.RUNTIME_DEPENDENCY_OF, _ARTIFACT) for library in libraries
    ]
    information = CreationInfo(
        spdx_version="SPDX-2.3",
        spdx_id="SPDXRef-DOCUMENT",
        name=manifest.model.name,
        document_namespace=f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, manifest.sealed().content_sha256 or '')}",
        creators=[Actor(ActorType.TOOL, f"dfc-{manifest.build.tools.get('dfc', 'unknown')}")],
        created=created,
    )
    return Document(
        information,
        packages=[whole, *checkpoints.values(), *tools, *libraries],
        files=list(files.values()),
        relationships=relations,
    )


def _now() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    try:
        return datetime.fromtimestamp(int(epoch), UTC).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        raise ArtifactError(f"SOURCE_DATE_EPOCH is {printable(epoch)!r}, not a number of seconds") from None


def _files(artifact: Artifact, progress: Progress | None) -> "dict[str, File]":
    from spdx_tools.spdx.model import Checksum, ChecksumAlgorithm, File

    contents = list_contents(artifact)
    total, done = sum(entry.size for entry in contents.values()), 0
    files = {}
    for number, (name, entry) in enumerate(contents.items()):
        first, second = hashlib.sha1(usedforsecurity=False), hashlib.sha256()
        with open_regular(artifact.path(name)) as content:
            while block := content.read(_BLOCK_BYTES):
                first.update(block)
                second.update(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
        if second.hexdigest() != entry.sha256:
            raise ArtifactError(f"{artifact.root} is damaged: {printable(name)} is not what its digest says")
        checksums = [
            Checksum(ChecksumAlgorithm.SHA1, first.hexdigest()),
            Checksum(ChecksumAlgorithm.SHA256, second.hexdigest()),
        ]
        files[f"./{name}"] = File(name=f"./{name}", spdx_id=f"SPDXRef-file-{number}", checksums=checksums)
    return files


def _weights(files: "dict[str, File]", component: str) -> "list[File]":
    """Return the files of a component's checkpoint, without what dfc wrote beside them."""
    folder = f"./weights/{component}/"
    return [file for name, file in files.items() if name.startswith(folder) and name != f"{folder}{CONVERTED_NAME}"]


def _package(spdx_id: str, name: str, origin: Origin | None, files: "Iterable[File]") -> "Package":
    from spdx_tools.spdx.model import ExternalPackageRef, ExternalPackageRefCategory, Package, SpdxNoAssertion
    from spdx_tools.spdx.model import PackageVerificationCode as VerificationCode

    # As SPDX 2.3 says in 7.9: the SHA-1 of the files' sorted SHA-1s.
    values = sorted(file.checksums[0].value for file in files)
    code = hashlib.sha1("".join(values).encode(), usedforsecurity=False).hexdigest()
    references = []
    if origin is not None:
        locator = f"pkg:huggingface/{origin.repository}@{origin.revision}"
        references.append(ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", locator))
    return Package(
        spdx_id=spdx_id,
        name=name,
        version=None if origin is None else origin.revision,
        download_location=SpdxNoAssertion(),
        verification_code=VerificationCode(code),
        external_references=references,
    )


def _tool(spdx_id: str, name: str, version: str) -> "Package":
    from spdx_tools.spdx.model import Package, SpdxNoAssertion

    return Package(
        spdx_id=re.sub(r"[^A-Za-z0-9.-]", "-", spdx_id),
        name=name,
        version=version,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
    )


def _libraries(manifest: Manifest) -> list[tuple[str, str]]:
    """Return the libraries that the engines are for, with their versions."""
    engines = (engine for stage in manifest.stages.values() for some in stage.engines.values() for engine in some)
    return sorted({(engine.library, engine.library_version) for engine in engines})
