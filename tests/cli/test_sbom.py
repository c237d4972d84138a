"""`dfc inspect --sbom`: a valid SPDX document that says what the artifact is made of."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import datetime
from pathlib import Path

from spdx_tools.spdx.model import RelationshipType
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.spdx_element_utils import calculate_package_verification_code
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from dfc.artifacts import Artifact, Component
from dfc.artifacts.manifest import Origin
from dfc.artifacts.sbom import describe
from tests.artifacts.samples import FILES, content, write_artifact, write_tensor_artifact
from tests.cli.damage import flip_bit
from tests.cli.process import assert_fails, dfc

DATE = {"SOURCE_DATE_EPOCH": "1700000000"}


def test_the_document_is_valid_and_says_everything(reference_artifact: Artifact, tmp_path: Path) -> None:
    finished = dfc("inspect", reference_artifact.root, "--sbom", environment=DATE)
    assert finished.returncode == 0, finished.stderr
    path = tmp_path / "artifact.spdx.json"
    path.write_bytes(finished.stdout)
    document = parse_file(str(path))
    assert validate_full_spdx_document(document) == []
    assert document.creation_info.created == datetime(2023, 11, 14, 22, 13, 20)
    found = {file.name: {sum_.algorithm.name: sum_.value for sum_ in file.checksums} for file in document.files}
    assert found == {
        f"./{name}": {"SHA1": hashlib.sha1(data).hexdigest(), "SHA256": hashlib.sha256(data).hexdigest()}
        for name, data in content(reference_artifact.root).items()
    }
    packages = {package.spdx_id: package for package in document.packages}
    manifest = reference_artifact.manifest
    assert {name: packages[f"SPDXRef-tool-{name}"].version for name in manifest.build.tools} == manifest.build.tools
    (engine, *_) = manifest.stages["target_verify"].engines["onnxruntime"]
    assert packages["SPDXRef-library-onnxruntime"].version == engine.library_version
    names = {file.spdx_id: file.name for file in document.files}
    for component in ("target", "dflash2"):
        checkpoint = packages[f"SPDXRef-checkpoint-{component}"]
        assert checkpoint.name == manifest.components[component].source  # type: ignore[index]
        held = [
            names[str(relation.related_spdx_element_id)]
            for relation in document.relationships
            if relation.spdx_element_id == checkpoint.spdx_id
            and relation.relationship_type == RelationshipType.CONTAINS
        ]
        wanted = [f"./{name}" for name in manifest.files if name.startswith(f"weights/{component}/")]
        assert sorted(held) == sorted(wanted) != []
        files = [file for file in document.files if file.name in wanted]
        assert checkpoint.verification_code == calculate_package_verification_code(files)


def test_the_same_artifact_gives_the_same_bytes(tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    shutil.copytree(root, tmp_path / "elsewhere")
    first, second = (dfc("inspect", path, "--sbom", environment=DATE) for path in (root, tmp_path / "elsewhere"))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["spdxVersion"] == "SPDX-2.3"


def test_a_checkpoint_of_known_origin_has_repository_and_revision(tmp_path: Path) -> None:
    from dfc.artifacts import open_artifact

    artifact = open_artifact(write_tensor_artifact(tmp_path / "artifact"))
    origin = Origin(repository="owner/model", revision="a" * 40)
    known = artifact.manifest.model_copy(update={"components": {"target": Component(source="tiny", origin=origin)}})
    document = describe(Artifact(artifact.root, known), datetime(2026, 1, 1))
    assert validate_full_spdx_document(document) == []
    (checkpoint,) = [package for package in document.packages if package.spdx_id == "SPDXRef-checkpoint-target"]
    assert checkpoint.version == "a" * 40
    assert [entry.locator for entry in checkpoint.external_references] == [f"pkg:huggingface/owner/model@{'a' * 40}"]


def test_converted_weights_are_made_from_the_checkpoint_and_no_part_of_it(tmp_path: Path) -> None:
    from dfc.compiler.conversion import CONVERTED

    files = {**FILES, f"weights/target/{CONVERTED}": b"made"}
    artifact = Artifact(tmp_path / "artifact", write_artifact(tmp_path / "artifact", files))
    document = describe(artifact, datetime(2026, 1, 1))
    assert validate_full_spdx_document(document) == []
    (made,) = [file.spdx_id for file in document.files if file.name.endswith(f"/{CONVERTED}")]
    checkpoint = "SPDXRef-checkpoint-target"
    assert {
        (relation.spdx_element_id, relation.relationship_type.name)
        for relation in document.relationships
        if made in (relation.spdx_element_id, relation.related_spdx_element_id)
    } == {("SPDXRef-artifact", "CONTAINS"), (made, "GENERATED_FROM")}
    (package,) = [package for package in document.packages if package.spdx_id == checkpoint]
    others = [file for file in document.files if file.name == "./weights/target/model.safetensors"]
    assert package.verification_code == calculate_package_verification_code(others)


def test_what_is_damaged_or_asked_for_wrongly_has_no_document(tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    assert_fails(dfc("inspect", root, "--sbom", "--json"), 2, "--sbom")
    assert_fails(dfc("inspect", root, "--sbom", environment={"SOURCE_DATE_EPOCH": "today"}), 1, "SOURCE_DATE_EPOCH")
    flip_bit(root / "weights/target/model.safetensors", 1)
    assert_fails(dfc("inspect", root, "--sbom"), 1, "model.safetensors", "digest")
