"""The training script really trains, at the smallest size, and writes checkpoints that decode."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tests.oracle.dflash2 import DFlash2
from tests.oracle.speculate import run
from tests.oracle.target import Target
from tests.paths import REFERENCE

Train = Callable[..., str]


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> Iterator[Train]:
    """Runs one stage of the script and returns what it printed."""
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(REFERENCE))
    from train import main

    def invoke(*arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(main, list(arguments))
        assert result.exit_code == exit_code, result.output
        return result.output

    yield invoke
    for name in [name for name in sys.modules if name == "train" or name.split(".")[0] == "training"]:
        del sys.modules[name]


def number_after(label: str, text: str) -> float:
    found = re.search(rf"{label} (\S+)", text)
    assert found, text
    return float(found[1])


def test_three_stages_give_checkpoints_that_decode(train: Train, tmp_path: Path) -> None:
    output = str(tmp_path)
    train("corpus", output, "--smoke")
    printed = train("target", output, "--smoke", "--steps", "80")
    first, held_out = (number_after(label, printed) for label in ("step 0: loss", "held-out loss"))
    assert held_out < first - 0.3  # nats; a model that learns nothing stays at ln(320)
    train("drafters", output, "--smoke", "--steps", "3")
    target = Target(tmp_path / "target")
    result = run(target, [5, 40, 60, 90], 16, dflash2=DFlash2(tmp_path / "dflash2", target), mtp_drafts=2)
    assert len(result.greedy_ids) == 16
    assert {len(entry["proposed"]) for entry in result.rounds["dflash2"]} == {3}
    assert {len(entry["proposed"]) for entry in result.rounds["mtp"]} == {2}
    before = (tmp_path / "dflash2" / "model.safetensors").read_bytes()
    assert "is there" in train("drafters", output, "--smoke", "--steps", "1")
    assert (tmp_path / "dflash2" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(("stage", "missing"), [("target", "corpus"), ("drafters", "target")])
def test_a_stage_without_its_input_says_which_one_to_run(
    train: Train, tmp_path: Path, stage: str, missing: str
) -> None:
    assert f"`train.py {missing}`" in train(stage, str(tmp_path), "--smoke", exit_code=1)


def test_the_training_modules_load_the_bundled_drafter(train: Train) -> None:
    """The trained module and the oracle draft the same block from the bundled weights."""
    from safetensors.torch import load_file
    from training.dflash2 import DFlash2 as TrainedDFlash2
    from training.scale import FULL

    target = Target(REFERENCE / "target")
    oracle = DFlash2(REFERENCE / "dflash2", target)
    module = TrainedDFlash2(FULL)
    module.load_state_dict(load_file(REFERENCE / "dflash2" / "model.safetensors"))
    token_ids = [463, 1306, 29, 285, 1997, 306, 274, 4031, 918, 17, 1230, 66, 2404, 11]
    features = target.forward(token_ids).features(FULL.dflash2.target_layer_ids)
    anchors = torch.tensor([[6, 13]])
    with torch.no_grad():
        blocks = module.propose(target.model.model.embed_tokens, torch.tensor([token_ids]), features[None], anchors)
    for block, anchor in zip(blocks[0], anchors[0].tolist(), strict=True):
        expected = oracle.propose(oracle.context(features[:anchor]), token_ids[anchor]).hidden
        torch.testing.assert_close(block, expected, rtol=1e-3, atol=1e-3)
