"""Published quantised checkpoints against their float64-dequantised weights run through transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dfc.artifacts.verification import verify
from tests.compiler.test_forward import assert_relatively_close, logits_of
from tests.end_to_end.decoding import build, decode
from tests.oracle.target import Target
from tests.quantisation.checkpoints import in_other_geometry, write_pair
from tests.quantisation.formats import FORMATS

IDS = [3, 200, 17, 17, 45, 319, 8]
PROMPT = (5, 77, 130, 9, 200)


@pytest.mark.parametrize("name", FORMATS)
def test_logits_and_tokens_are_those_of_the_dequantised_weights(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path, FORMATS[name])
    artifact = build(tmp_path / "artifact", pair.quantised, draft_tokens=1)
    oracle = Target(pair.plain)
    logits = logits_of(pair.quantised, artifact.path("weights"), IDS)
    assert_relatively_close(logits, oracle.forward(IDS).logits.numpy())
    expected = oracle.greedy(list(PROMPT), 16)
    assert min(expected.margins) > 1e-3, "a near tie would make this case a coin toss: choose another seed"
    assert decode(artifact, PROMPT, 16, "none").token_ids == expected.tokens
    assert decode(artifact, PROMPT, 16, "mtp").token_ids == expected.tokens


def test_blocks_at_the_border_are_cut(tmp_path: Path) -> None:
    geometry = in_other_geometry(hidden_size=144, intermediate_size=320, seed=3)
    pair = write_pair(tmp_path, FORMATS["fp8, blocks of 128"], geometry)
    artifact = build(tmp_path / "artifact", pair.quantised, draft_tokens=1)
    logits = logits_of(pair.quantised, artifact.path("weights"), IDS)
    assert_relatively_close(logits, Target(pair.plain).forward(IDS).logits.numpy())


@pytest.mark.parametrize(
    "name", ["fp8, blocks of 128", "compressed-tensors, int4, groups of 32", "modelopt, nvfp4", "modelopt, fp8"]
)
def test_weights_whose_bytes_can_be_used_stay_in_the_checkpoints_files(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path, FORMATS[name])
    artifact = build(tmp_path / "artifact", pair.quantised, draft_tokens=1)
    files = sorted(path.name for path in artifact.path("weights/target").iterdir())
    assert files == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert all(artifact.path(f"weights/target/{file}").samefile(pair.quantised / file) for file in files)


@pytest.mark.parametrize("name", ["gptq", "awq"])
def test_other_weights_are_written_once_and_nothing_of_their_files_is_kept(tmp_path: Path, name: str) -> None:
    pair = write_pair(tmp_path, FORMATS[name])
    artifact = build(tmp_path / "artifact", pair.quantised, draft_tokens=1)
    again = build(tmp_path / "again", pair.quantised, draft_tokens=1)
    converted = artifact.path("weights/target/dfc-converted.safetensors")
    assert list(converted.parent.iterdir()) == [converted]
    # The public library reads the file: no gaps, every tensor of the size that its type and shape say.
    tensors = load_file(converted)
    assert tensors["model.norm.weight"].dtype == torch.bfloat16
    assert verify(artifact) == []
    assert converted.read_bytes() == again.path("weights/target/dfc-converted.safetensors").read_bytes()
