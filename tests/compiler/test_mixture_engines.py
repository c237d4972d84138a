"""TensorRT-RTX engines of a mixture, built without a GPU: few rows and prompts, each with its own form."""

from __future__ import annotations

from pathlib import Path

import pytest

from dfc.artifacts import open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.engines.shapes import PROMPT_ROWS
from tests.oracle.random_checkpoints import Experts, TargetGeometry, write_target

pytest.importorskip("tensorrt_rtx_libs", reason="the extra 'test' has it on Linux for x86-64 only")


@pytest.mark.slow
@pytest.mark.xdist_group("rtx")
def test_every_stage_of_a_mixture_builds(tmp_path: Path) -> None:
    geometry = TargetGeometry(experts=Experts(count=32, chosen=4, width=64, shared_width=64, mtp_fused=False))
    target = write_target(tmp_path / "target", geometry)
    build_artifact(BuildRequest(target, (), tmp_path / "artifact", "tensorrt-rtx", max_context=256, draft_tokens=2))
    artifact = open_artifact(tmp_path / "artifact")
    assert {"target_advance", "target_verify", "draft_mtp_2"} <= set(artifact.manifest.stages)
    for name, stage in artifact.manifest.stages.items():
        rows = [engine.sizes["T"] for engine in stage.engines["tensorrt-rtx"]]
        assert rows == [1 if name.startswith("target_advance") else 3, PROMPT_ROWS], name
    experts = [name for name in artifact.manifest.weights if name.endswith("experts.gate_up_proj")]
    assert len(experts) == 4
