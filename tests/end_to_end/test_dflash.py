"""DFlash drafters with random weights against the PyTorch oracle, alone and beside the other drafters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.engines import BACKENDS as COMPILERS
from dfc.runtime.engines import BACKENDS as RUNTIMES
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.sampling import DRAFT, Sampling, uniforms
from tests.end_to_end import widened
from tests.end_to_end.decoding import build, decode, open_decoder
from tests.end_to_end.geometries import BLOCK_DRAFTERS, NEW_TOKENS, PLAIN, PROMPTS
from tests.oracle import speculate
from tests.oracle.dflash import DFlash
from tests.oracle.dflash2 import DFlash2
from tests.oracle.random_checkpoints import DraftGeometry, write_dflash, write_dflash2, write_target
from tests.oracle.target import Target

CASES = {
    **BLOCK_DRAFTERS,
    "wrapper, tied, one file, block of two, settings at top level": (
        replace(PLAIN, with_vision=True, tied=True, shards=1, seed=3),
        DraftGeometry(block_size=2, nested=False),
    ),
    "block of 16, every layer tapped, out of order": (
        replace(PLAIN, seed=4),
        DraftGeometry(block_size=16, target_layer_ids=(2, 0, 1), windows=(0,)),
    ),
    "one layer tapped twice": (replace(PLAIN, seed=5), DraftGeometry(target_layer_ids=(1, 2, 1))),
    "causal everywhere, biases, scales, soft cap, prefix": (
        replace(PLAIN, seed=7, dtype=torch.float32),
        DraftGeometry(
            causal=True,
            attention_bias=True,
            input_embedding_scale=0.5,
            output_multiplier=0.7,
            final_logit_softcapping=4.0,
            prefix="model.",
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_rounds_equal_the_oracles(tmp_path: Path, name: str) -> None:
    geometry, draft = CASES[name]
    target_directory = write_target(tmp_path / "target", geometry)
    draft_directory = write_dflash(tmp_path / "draft", geometry, draft)
    artifact = build(tmp_path / "artifact", target_directory, draft_directory)
    target = Target(target_directory)
    drafter = DFlash(draft_directory, target)
    for prompt in PROMPTS:
        for block_size in {draft.block_size, 2}:
            expected = speculate.run(target, list(prompt), NEW_TOKENS, dflash=drafter, block_size=block_size)
            assert expected.min_top2_margin > 1e-3, "a near tie would make this case a coin toss: choose another seed"
            decoded = decode(artifact, prompt, NEW_TOKENS, "dflash", block_size - 1)
            assert decoded.token_ids == expected.greedy_ids
            assert decoded.rounds == expected.rounds["dflash"]
        assert decode(artifact, prompt, NEW_TOKENS, "none").token_ids == expected.greedy_ids


FIRST = DraftGeometry(target_layer_ids=(2, 0), block_size=6, seed=21)
SECOND = DraftGeometry(target_layer_ids=(1, 2), block_size=8, seed=22)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "target": write_target(root / "target", PLAIN),
        "dflash": write_dflash(root / "dflash", PLAIN, FIRST),
        "dflash2": write_dflash2(root / "dflash2", PLAIN, SECOND),
    }


@pytest.fixture(scope="module")
def expected(checkpoints: dict[str, Path]) -> dict[tuple[int, ...], speculate.Run]:
    target = Target(checkpoints["target"])
    drafters = DFlash(checkpoints["dflash"], target), DFlash2(checkpoints["dflash2"], target)
    runs = {
        prompt: speculate.run(target, list(prompt), NEW_TOKENS, dflash=drafters[0], dflash2=drafters[1], mtp_drafts=3)
        for prompt in PROMPTS
    }
    assert all(run.min_top2_margin > 1e-3 for run in runs.values())
    return runs


def features_width(artifact: Artifact) -> int | str:
    (features,) = (tensor for tensor in artifact.manifest.stages["target_verify"].outputs if tensor.name == "features")
    return features.shape[-1]


@pytest.mark.parametrize("order", [("dflash", "dflash2"), ("dflash2", "dflash")])
def test_three_drafters_in_one_artifact(
    tmp_path: Path,
    checkpoints: dict[str, Path],
    expected: dict[tuple[int, ...], speculate.Run],
    order: tuple[str, str],
) -> None:
    artifact = build(tmp_path / "artifact", checkpoints["target"], *(checkpoints[name] for name in order))
    assert set(artifact.manifest.components) == {"target", "mtp", "dflash", "dflash2"}
    # One verified block holds the three tapped layers, each once, and each drafter finds its own two.
    assert features_width(artifact) == 3 * PLAIN.hidden_size
    for prompt, run in expected.items():
        assert set(run.rounds) == {"dflash", "dflash2", "mtp"}
        for speculation, draft_tokens in (("dflash", None), ("dflash2", None), ("mtp", 3)):
            decoded = decode(artifact, prompt, NEW_TOKENS, speculation, draft_tokens)
            assert decoded.token_ids == run.greedy_ids
            assert decoded.rounds == run.rounds[speculation]
    plan = resolve(SpeculationRequest(), artifact.manifest, RunContext("onnxruntime"))
    assert (plan.speculation, plan.draft_tokens) == ("dflash2", 7)


def test_a_sampled_run_draws_its_drafts_from_the_drafter(tmp_path: Path, checkpoints: dict[str, Path]) -> None:
    """By inverse distribution over the 16 likeliest tokens of a slot, with the numbers of the tokens' positions."""
    artifact = build(tmp_path / "artifact", checkpoints["target"], checkpoints["dflash"])
    target = Target(checkpoints["target"])
    drafter = DFlash(checkpoints["dflash"], target)
    sampling = Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0, seed=5)
    decoder = open_decoder(artifact, "dflash", sampling=sampling)
    prompt = list(PROMPTS[1])
    committed = [*prompt, decoder.start(prompt)]
    drawn, likeliest = 0, 0
    for _ in range(8):
        finished = decoder.step()
        features = target.forward(committed[:-1]).features(drafter.target_layer_ids)
        assert finished.anchor == committed[-1]
        scores, candidates = drafter.logits(features, committed[-1]).double().topk(16)
        sums = (scores / sampling.temperature).softmax(-1).cumsum(-1)
        noise = torch.from_numpy(uniforms(sampling.seed, DRAFT, len(committed), len(sums))).double()
        places = torch.searchsorted(sums, noise[:, None], right=True).clamp(max=15)
        assert list(finished.proposed) == candidates.gather(1, places)[:, 0].tolist()
        drawn += len(finished.proposed)
        likeliest += int((places == 0).sum())
        committed += finished.tokens
    assert likeliest < drawn, "draws that are all the likeliest show nothing"


def test_the_tensorrt_graphs_draft_the_same(
    tmp_path: Path,
    checkpoints: dict[str, Path],
    expected: dict[tuple[int, ...], speculate.Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(COMPILERS, widened.NAME, widened.BACKEND)
    monkeypatch.setitem(RUNTIMES, widened.NAME, widened.open_engines)
    drafts = (checkpoints["dflash2"], checkpoints["dflash"])
    build_artifact(BuildRequest(checkpoints["target"], drafts, tmp_path / "artifact", widened.NAME))
    artifact = open_artifact(tmp_path / "artifact")
    for prompt, run in expected.items():
        for speculation in ("dflash", "dflash2"):
            decoded = decode(artifact, prompt, NEW_TOKENS, speculation, backend=widened.NAME)
            assert decoded.token_ids == run.greedy_ids
            assert decoded.rounds == run.rounds[speculation]
