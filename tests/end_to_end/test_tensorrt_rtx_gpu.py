"""TensorRT-RTX engines on a GPU: tokens, acceptance, sampling, and `dfc run` itself.

`DFC_TENSORRT_RTX_ARTIFACT` names an artifact of the reference model that was built elsewhere (on a machine without a
GPU, say); without it the engines are built here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.runtime.sampling import Sampling
from tests.compiler.test_sampling import expected_distribution
from tests.end_to_end.decoding import Decoded, decode_with, new_tokens, open_decoder
from tests.paths import REFERENCE
from tests.statistics import chi_square_p

pytestmark = pytest.mark.gpu

BACKEND = "tensorrt-rtx"
DRAFT_TOKENS = {"none": None, "mtp": 3, "dflash2": None}
BFLOAT16_BITS = 8
DRAWS = 1000


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The reference model with both drafters for TensorRT-RTX."""
    elsewhere = os.environ.get("DFC_TENSORRT_RTX_ARTIFACT")
    if elsewhere is not None:
        return open_artifact(Path(elsewhere))
    output = tmp_path_factory.mktemp("tensorrt-rtx") / "artifact"
    build_artifact(BuildRequest(REFERENCE / "target", (REFERENCE / "dflash2",), output, BACKEND))
    return open_artifact(output)


@pytest.fixture(scope="module")
def runs(artifact: Artifact, reference_runs: list[dict[str, Any]]) -> dict[str, list[Decoded]]:
    """The golden prompts, decoded with each drafter."""
    found = {}
    for name, draft_tokens in DRAFT_TOKENS.items():
        decoder = open_decoder(artifact, name, draft_tokens, backend=BACKEND)
        found[name] = [decode_with(decoder, case["prompt_ids"], len(case["greedy_ids"])) for case in reference_runs]
    return found


def differing_logits(
    model: Any, cases: list[dict[str, Any]], one: list[Decoded], other: list[Decoded]
) -> Iterator[tuple[int, float, float]]:
    """Yield, where two runs part, the prompt's number and the float32 logits of the two tokens there."""
    for index, (case, left, right) in enumerate(zip(cases, one, other, strict=True)):
        pairs = enumerate(zip(left.token_ids, right.token_ids, strict=True))
        place = next((place for place, (a, b) in pairs if a != b), None)
        if place is not None:
            with torch.inference_mode():
                logits = model(torch.tensor([[*case["prompt_ids"], *left.token_ids[:place]]])).logits[0, -1]
            yield index, float(logits[left.token_ids[place]]), float(logits[right.token_ids[place]])


@pytest.mark.parametrize("name", ["mtp", "dflash2"])
def test_tokens_are_those_of_plain_decoding_but_where_bfloat16_cannot_tell(
    runs: dict[str, list[Decoded]], reference_runs: list[dict[str, Any]], reference_model: Any, name: str
) -> None:
    parted = list(differing_logits(reference_model, reference_runs, runs[name], runs["none"]))
    print(f"{name}: {parted}")
    assert len(parted) <= len(reference_runs) // 2
    for index, left, right in parted:
        step = 2.0 ** (np.floor(np.log2(max(abs(left), abs(right)))) - BFLOAT16_BITS + 1)
        # Each logit is rounded once at the end, and what it is made of is rounded before.
        assert abs(left - right) <= 2 * step, index


@pytest.mark.parametrize("name", ["mtp", "dflash2"])
def test_acceptance_is_that_of_the_golden_rounds(
    runs: dict[str, list[Decoded]], reference_runs: list[dict[str, Any]], name: str
) -> None:
    golden = "mtp3_rounds" if name == "mtp" else "dflash2_rounds"
    wanted = sum(entry["accepted"] for case in reference_runs for entry in case[golden])
    accepted = sum(int(str(entry["accepted"])) for decoded in runs[name] for entry in decoded.rounds)
    print(f"{name}: accepted {accepted}, golden {wanted}")
    assert accepted == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("name", list(DRAFT_TOKENS))
def test_run_prints_the_same_tokens(
    artifact: Artifact, runs: dict[str, list[Decoded]], reference_runs: list[dict[str, Any]], name: str
) -> None:
    case = reference_runs[0]
    ids = ",".join(map(str, case["prompt_ids"]))
    arguments = ["run", str(artifact.root), "--prompt-ids", ids, "--spec", name, "--ignore-eos", "--json"]
    arguments += ["--max-new", str(len(case["greedy_ids"])), "--greedy"]
    arguments += ["--draft-tokens", str(DRAFT_TOKENS[name])] if DRAFT_TOKENS[name] else []
    ran = subprocess.run(
        [sys.executable, "-m", "dfc.runtime.cli.main", *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["token_ids"] == runs[name][0].token_ids


@pytest.mark.parametrize("name", list(DRAFT_TOKENS))
def test_sampling_has_the_distribution_of_the_target(
    artifact: Artifact, reference_runs: list[dict[str, Any]], reference_model: Any, name: str
) -> None:
    sampling = Sampling(temperature=1.0, top_k=8, top_p=1.0, min_p=0.0, seed=0)
    prompt = min((case["prompt_ids"] for case in reference_runs), key=len)
    decoder = open_decoder(artifact, name, DRAFT_TOKENS[name], backend=BACKEND, sampling=sampling)
    sequences = []
    for seed in range(DRAWS):
        decoder.sample_as(replace(sampling, seed=seed))
        sequences.append(new_tokens(decoder, prompt, 2))
    tokens = np.array(sequences)
    decoder.sample_as(sampling)
    assert new_tokens(decoder, prompt, 2) == sequences[0]
    first, count = np.unique(tokens[:, 0], return_counts=True)
    likeliest = int(first[count.argmax()])
    settings = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    for prefix, drawn in (((), tokens[:, 0]), ((likeliest,), tokens[tokens[:, 0] == likeliest, 1])):
        with torch.inference_mode():
            logits = reference_model(torch.tensor([[*prompt, *prefix]])).logits[:, -1].numpy()
        probabilities = expected_distribution(logits, *settings)[0]
        p = chi_square_p(np.bincount(drawn, minlength=len(probabilities)), probabilities)
        print(f"{name}, after {len(prefix)} tokens: {len(drawn)} draws, p {p:.3g}")
        assert p > 1e-4
