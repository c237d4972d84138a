"""Damaged headers of any kind are refused with an ArtifactError, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dfc.artifacts import Artifact
from tests.artifacts.samples import write_tensor_artifact
from tests.paths import ROOT

COUNT = 10_000


def test_mutated_headers_raise_artifact_errors_only(tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    finished = subprocess.run(
        [sys.executable, "-m", "tests.artifacts.fuzzing", root, str(COUNT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    outcomes = json.loads(finished.stdout)
    assert len(outcomes) == 3
    assert sum(sum(outcome.values()) for outcome in outcomes.values()) == COUNT
    # Mutations that nothing notices or that never get past the first check would test little.
    for outcome in outcomes.values():
        assert outcome["refused"] > COUNT // 20, outcomes
        assert outcome["taken"] > 0, outcomes


def test_a_real_artifacts_engines_are_read_as_onnx_reads_them(reference_artifact: Artifact) -> None:
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    from dfc.artifacts.onnx_header import external_tensors

    for name in reference_artifact.manifest.files:
        if not name.endswith(".onnx"):
            continue
        data = reference_artifact.path(name).read_bytes()
        model = onnx.load_model_from_string(data)
        expected = set()
        for tensor in model.graph.initializer:
            if uses_external_data(tensor):
                info = ExternalDataInfo(tensor)
                expected.add((tensor.name, info.location, info.offset or 0, info.length))
        found = {(item.name, item.location, item.offset, item.length) for item in external_tensors(data)}
        assert expected
        assert found == expected
