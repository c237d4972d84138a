"""Comparing manifests finds every change, and names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import Artifact, Manifest
from dfc.artifacts.difference import Change, differences
from dfc.artifacts.reader import read_manifest
from tests.artifacts.samples import DEVICE, ENGINE, sample_calibration, write_tensor_artifact


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """A manifest in which every part of the format is filled."""
    document = as_json(read_manifest(write_tensor_artifact(tmp_path / "artifact")))
    document["components"]["mtp"] = {"source": "tiny", "parameters": {}}
    document["calibration"] = {DEVICE: sample_calibration().model_dump(mode="json")}
    document["build"] = {"options": {"backend": "onnxruntime"}, "tools": {"dfc": "1"}}
    engine = document["stages"]["target_advance"]["engines"]["onnxruntime"][0]
    engine.update({"options": {"level": "3"}, "sizes": {"T": 8}, "compute_capabilities": ["9.0"]})
    return Manifest.model_validate_json(json.dumps(document))


def as_json(manifest: Manifest) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(manifest.to_json())
    return document


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value that is neither a list nor an object."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def changed(manifest: Manifest, path: tuple[Any, ...]) -> Manifest:
    """Return the manifest with the value at a path changed; it need not be one that a loader takes."""
    document = as_json(manifest)
    place = document
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]]
    place[path[-1]] = not value if isinstance(value, bool) else f"{value}x" if isinstance(value, str) else 7777
    return rebuilt(document)


def rebuilt(document: dict[str, Any]) -> Manifest:
    class Plain(Manifest):
        def model_dump(self, **options: Any) -> dict[str, Any]:
            copied: dict[str, Any] = json.loads(json.dumps(document))
            return copied

    return Plain.model_construct()


def test_equal_manifests(manifest: Manifest, reference_artifact: Artifact) -> None:
    assert differences(manifest, manifest) == []
    assert differences(reference_artifact.manifest, reference_artifact.manifest) == []
    # The digest of the text follows from the rest.
    assert differences(manifest, manifest.sealed()) == []


def test_any_changed_value_is_found(manifest: Manifest) -> None:
    paths = [path for path in leaves(as_json(manifest)) if path != ("content_sha256",)]
    assert len(paths) > 60
    for path in paths:
        assert differences(manifest, changed(manifest, path)), path
        assert differences(changed(manifest, path), manifest), path


def test_a_changed_order_is_found(manifest: Manifest) -> None:
    document = as_json(manifest)
    document["stages"]["target_advance"]["inputs"].reverse()
    (change,) = differences(manifest, Manifest.model_validate_json(json.dumps(document)))
    assert (change.section, change.item, change.field) == ("stages", "target_advance", "order of inputs")


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("model", "max_context"), 65, Change("model", "model", "max_context", 64, 65)),
        (("precision",), "float16", Change("model", "artifact", "precision", "float32", "float16")),
        (
            ("components", "target", "parameters", "capacity"),
            True,
            Change("components", "target", "parameter capacity", 72, True),
        ),
        (
            ("stages", "target_advance", "inputs", 1, "dtype"),
            "float16",
            Change("tensors", "target_advance input key_3", "dtype", "float32", "float16"),
        ),
        (
            ("stages", "target_advance", "engines", "onnxruntime", 0, "library_version"),
            "2",
            Change("engines", "target_advance onnxruntime 0", "library_version", "1.32.0", "2"),
        ),
        (("files", ENGINE, "sha256"), "0" * 64, Change("files", ENGINE, "sha256", ..., "0" * 64)),
        (("build", "tools", "dfc"), "2", Change("build", "tools", "dfc", "1", "2")),
        (("build", "options", "new"), "2", Change("build", "options", "new", None, "2")),
        (("files", "more"), {"size": 0, "sha256": "0" * 64}, Change("files", "more", None, None, ...)),
        (("calibration", DEVICE, "library"), "other", Change("calibration", DEVICE, "library", "onnxruntime", "other")),
        (
            ("calibration", DEVICE, "rounds", 0, "seconds"),
            [0.5, 0.25],
            Change("calibration", DEVICE, "round none 0", [0.5, 0.75], [0.5, 0.25]),
        ),
        (
            ("calibration", DEVICE, "acceptance", "mtp"),
            [0.75, 0.25],
            Change("calibration", DEVICE, "acceptance mtp", [0.75, 0.5], [0.75, 0.25]),
        ),
        (
            ("calibration", "other"),
            sample_calibration().model_dump(mode="json"),
            Change("calibration", "other", None, None, ...),
        ),
    ],
)
def test_changes_are_named(manifest: Manifest, path: tuple[Any, ...], value: Any, expected: Change) -> None:
    document = as_json(manifest)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (change,) = differences(manifest, Manifest.model_validate_json(json.dumps(document)))
    assert (change.section, change.item, change.field) == (expected.section, expected.item, expected.field)
    for found, wanted in ((change.a, expected.a), (change.b, expected.b)):
        assert wanted is ... or (type(found), found) == (type(wanted), wanted)
