"""A long generation must not bind calls, and with them memory and CUDA graphs, round after round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dfc.artifacts import Artifact
from dfc.runtime.engine import Buffer, Call, Copy
from dfc.runtime.engines.onnxruntime import OnnxruntimeEngine
from tests.end_to_end.decoding import open_decoder


@pytest.mark.parametrize("name", ["none", "mtp", "dflash2"])
def test_rounds_reuse_the_calls_of_the_first_ones(
    reference_artifact: Artifact, reference_runs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bound = 0
    original = OnnxruntimeEngine.bind

    def bind(engine: OnnxruntimeEngine, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        nonlocal bound
        bound += 1
        return original(engine, buffers, copies)

    monkeypatch.setattr(OnnxruntimeEngine, "bind", bind)
    decoder = open_decoder(reference_artifact, name)
    for case in reference_runs[:2]:
        decoder.start(case["prompt_ids"])
        for _ in range(3):
            decoder.step()
        before = bound
        for _ in range(8):
            decoder.step()
        assert bound == before > 0
