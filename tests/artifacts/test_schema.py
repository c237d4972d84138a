"""The published JSON Schema is the one of the present manifest, and it tells manifests from other things."""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

import jsonschema
import pytest

from dfc.artifacts import Artifact
from dfc.artifacts.schema import SCHEMA_NAME, manifest_schema


@pytest.fixture
def published() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((importlib.resources.files("dfc.artifacts") / SCHEMA_NAME).read_text())
    return schema


def test_it_is_what_the_model_makes_now(published: dict[str, Any]) -> None:
    assert published == json.loads(manifest_schema()), (
        "the format changed; run python -m dfc.artifacts.schema > artifacts/manifest.schema.json"
    )


def test_it_is_a_schema_that_a_real_manifest_fits(published: dict[str, Any], reference_artifact: Artifact) -> None:
    jsonschema.Draft202012Validator.check_schema(published)
    manifest = json.loads(reference_artifact.path("manifest.json").read_text())
    jsonschema.validate(manifest, published)
    for field, value in {"schema_version": 2, "precision": "int3", "surprise": 1, "content_sha256": "short"}.items():
        with pytest.raises(jsonschema.ValidationError, match=str(value)):
            jsonschema.validate({**manifest, field: value}, published)
