"""Random checkpoints load into the oracle; its drafter reads settings, windows and padding as the formulas say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from tests.oracle.checkpoint import read_config, tokenizer_size
from tests.oracle.dflash2 import DFlash2
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash2, write_target
from tests.oracle.target import Target

BYTES_AND_SPECIALS = 3 + 256


@pytest.fixture(scope="module")
def geometry() -> TargetGeometry:
    return TargetGeometry()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, geometry: TargetGeometry) -> Target:
    return Target(write_target(tmp_path_factory.mktemp("random") / "target", geometry))


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    first, second = (write_target(tmp_path / name, TargetGeometry(shards=1)) for name in ("first", "second"))
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    other = write_target(tmp_path / "other", TargetGeometry(shards=1, seed=1))
    assert (first / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


def test_shards_hold_every_tensor_of_the_single_file_once(tmp_path: Path) -> None:
    single = write_target(tmp_path / "single", TargetGeometry(shards=1))
    sharded = write_target(tmp_path / "sharded", TargetGeometry(shards=3))
    names: list[str] = []
    for file in sorted(sharded.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            names += opened.keys()
    with safe_open(single / "model.safetensors", "pt") as opened:
        assert sorted(names) == sorted(opened.keys())
    weight_map = json.loads((sharded / "model.safetensors.index.json").read_text())["weight_map"]
    assert sorted(weight_map) == sorted(names)
    assert len(set(weight_map.values())) == 3


def test_wrapper_and_plain_layouts_of_the_same_weights_agree(tmp_path: Path, target: Target) -> None:
    wrapper = Target(write_target(tmp_path / "wrapper", TargetGeometry(with_vision=True)))
    assert torch.equal(wrapper.forward([5, 6, 7]).logits, target.forward([5, 6, 7]).logits)


def test_tokenizer_round_trips_any_bytes_and_leaves_padding_rows(tmp_path: Path) -> None:
    directory = write_target(tmp_path / "target", TargetGeometry())
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = "<|im_start|>user\ndef f(x):  # ünïcödé\n"
    encoding = tokenizer.encode(text)
    assert encoding.ids[0] == 1
    assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
    assert tokenizer_size(directory) == BYTES_AND_SPECIALS == Target(directory).candidate_vocab_size


def test_cached_greedy_decoding_equals_uncached(target: Target) -> None:
    prompt = [10, 50, 99, 200]
    greedy = target.greedy(prompt, 12)
    assert len(set(greedy.tokens)) > 1
    logits = target.forward(prompt + greedy.tokens).logits[len(prompt) - 1 : -1]
    assert logits.argmax(-1).tolist() == greedy.tokens
    top = logits.topk(2).values
    assert greedy.margins == pytest.approx((top[:, 0] - top[:, 1]).tolist(), abs=1e-3)


def test_padding_rows_are_never_proposed(tmp_path: Path, geometry: TargetGeometry) -> None:
    target = Target(write_target(tmp_path / "target", geometry))
    dflash2 = DFlash2(write_dflash2(tmp_path / "draft", geometry, DraftGeometry()), target)
    context = dflash2.context(target.forward([5, 6, 7]).features((0, 2)))
    best = int((dflash2.propose(context, 8).hidden[0] @ target.head.T).argmax())
    with torch.no_grad():
        target.head[BYTES_AND_SPECIALS:] = 100 * target.head[best]
    assert int(dflash2.propose(context, 8).candidates.max()) < BYTES_AND_SPECIALS


@pytest.mark.parametrize("nested", [True, False])
def test_drafter_settings_are_read_nested_or_at_top_level(
    tmp_path: Path, target: Target, geometry: TargetGeometry, nested: bool
) -> None:
    draft = DraftGeometry(windows=(6, 0), block_size=5, nested=nested, output_multiplier=0.5)
    config = DFlash2(write_dflash2(tmp_path / "draft", geometry, draft), target).config
    assert ("dflash_config" in read_config(tmp_path / "draft")) is nested
    assert (config.block_size, config.output_multiplier, config.rope_theta) == (5, 0.5, 5e5)
    assert config.sliding_windows == (6, None)
    assert config.causal == (True, False)


def test_a_window_of_six_sees_itself_and_five_rows_before(
    tmp_path: Path, target: Target, geometry: TargetGeometry
) -> None:
    # one tap: a second one would bring the anchor row's own, earlier window along
    draft = DraftGeometry(windows=(6,), block_size=2, causal=True, taps=1)
    dflash2 = DFlash2(write_dflash2(tmp_path / "draft", geometry, draft), target)
    features = target.forward(list(range(70, 80))).features(draft.target_layer_ids)

    def drafted(changed: int) -> torch.Tensor:
        moved = features.clone()
        moved[changed] += 1
        return dflash2.propose(dflash2.context(moved), 9).hidden

    # the drafted row stands at position 11, so it sees positions 6 to 11
    unchanged = dflash2.propose(dflash2.context(features), 9).hidden
    assert torch.equal(drafted(5), unchanged)
    assert not torch.allclose(drafted(6), unchanged)


def test_the_selectors_walk_depends_on_the_anchor(tmp_path: Path, target: Target, geometry: TargetGeometry) -> None:
    """Scores are unary plus pair scores with the realised predecessor, recomputed here for one slot."""
    dflash2 = DFlash2(write_dflash2(tmp_path / "draft", geometry, DraftGeometry()), target)
    proposal = dflash2.propose(dflash2.context(target.forward([5, 6, 7]).features((0, 2))), 8)
    slot = 2
    previous, token = proposal.tokens[slot - 1], proposal.tokens[slot]
    gate = dflash2.weight("candidate_selector.hidden_projection") @ proposal.hidden[slot]
    pair = (
        dflash2.weight("candidate_selector.predecessor_codebook")[previous]
        * gate
        * dflash2.weight("candidate_selector.successor_codebook")[token]
    ).sum()
    expected = target.head[token] @ proposal.hidden[slot] + pair
    assert float(proposal.scores[slot].max()) == pytest.approx(float(expected), rel=1e-4)
