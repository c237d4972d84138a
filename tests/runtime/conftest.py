"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.text import TextCodec, load_codec


@pytest.fixture(scope="session")
def codec(reference_artifact: Artifact) -> TextCodec:
    loaded = load_codec(reference_artifact)
    assert loaded is not None
    return loaded
