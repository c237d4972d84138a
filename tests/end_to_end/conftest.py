"""Fixtures of the tests that decode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.paths import REFERENCE


@pytest.fixture(scope="session")
def reference_model() -> Any:
    """The bundled reference target in transformers, float32."""
    return AutoModelForCausalLM.from_pretrained(REFERENCE / "target", dtype=torch.float32).eval()
