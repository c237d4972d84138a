"""Fixtures that many tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from dfc.artifacts import Artifact
from tests.end_to_end.decoding import build
from tests.paths import GOLDEN, REFERENCE

torch.set_num_threads(1)

# A busy machine is no failure: no example has a deadline.
settings.register_profile("dfc", deadline=None)
settings.load_profile("dfc")


@pytest.fixture(scope="session")
def reference_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The bundled reference model with both drafters."""
    return build(tmp_path_factory.mktemp("reference") / "artifact", REFERENCE / "target", REFERENCE / "dflash2")


@pytest.fixture(scope="session")
def reference_runs() -> list[dict[str, Any]]:
    """The golden runs of the reference model."""
    cases: list[dict[str, Any]] = json.loads((GOLDEN / "reference_runs.json").read_text())["cases"]
    return cases


@pytest.fixture(scope="session")
def reference() -> Path:
    """Where the reference checkpoints lie."""
    return REFERENCE
