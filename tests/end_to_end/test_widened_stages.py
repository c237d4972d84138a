"""The TensorRT graphs, whole, against the golden runs: every rule, the padding, and the runtime over static shapes."""

from __future__ import annotations

from typing import Any

import pytest

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.engines import BACKENDS as COMPILERS
from dfc.runtime.engines import BACKENDS as RUNTIMES
from dfc.runtime.sampling import Sampling
from tests.end_to_end import widened
from tests.end_to_end.decoding import decode
from tests.paths import REFERENCE


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    output = tmp_path_factory.mktemp("widened") / "artifact"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COMPILERS, widened.NAME, widened.BACKEND)
        build_artifact(BuildRequest(REFERENCE / "target", (REFERENCE / "dflash2",), output, widened.NAME))
    return open_artifact(output)


@pytest.mark.parametrize(
    "speculation, draft_tokens, golden_rounds",
    [("none", None, None), ("mtp", 3, "mtp3_rounds"), ("dflash2", None, "dflash2_rounds")],
)
def test_tokens_and_rounds_equal_the_golden_ones(
    artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    speculation: str,
    draft_tokens: int | None,
    golden_rounds: str | None,
) -> None:
    monkeypatch.setitem(RUNTIMES, widened.NAME, widened.open_engines)
    longest = max(reference_runs, key=lambda case: len(case["prompt_ids"]))
    for case in (*reference_runs[:3], longest):
        decoded = decode(artifact, case["prompt_ids"], 40, speculation, draft_tokens, backend=widened.NAME)
        assert decoded.token_ids == case["greedy_ids"][:40], case["prompt"]
        if golden_rounds is not None:
            complete = decoded.rounds[:-1]
            assert complete == case[golden_rounds][: len(complete)], case["prompt"]
            assert complete


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
def test_sampled_tokens_equal_those_of_onnxruntime(
    artifact: Artifact,
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    speculation: str,
) -> None:
    monkeypatch.setitem(RUNTIMES, widened.NAME, widened.open_engines)
    sampling = Sampling(0.9, top_k=20, top_p=0.95, min_p=0.01, seed=5, repetition_penalty=1.1, presence_penalty=0.3)
    prompt, drafts = reference_runs[4]["prompt_ids"], 3 if speculation == "mtp" else None
    found = decode(artifact, prompt, 40, speculation, drafts, backend=widened.NAME, sampling=sampling)
    assert found == decode(reference_artifact, prompt, 40, speculation, drafts, sampling=sampling)
    assert found.token_ids != reference_runs[4]["greedy_ids"][:40]
