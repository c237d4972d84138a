"""The target's state after speculative rounds is the state after plain decoding of the same tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.artifacts import Artifact
from dfc.runtime.engine import Array, Buffer, Engine, integers
from dfc.runtime.engines import load_stage
from dfc.runtime.states import States
from dfc.runtime.target import AdvancingTarget, VerifyingTarget
from tests.end_to_end.decoding import build
from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry, write_dflash2, write_target
from tests.oracle.state import AttentionState, state_after
from tests.oracle.target import Target

BLOCK = 8
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("states") / "target", TargetGeometry(layers="gagg", mtp=True))


@pytest.fixture(scope="module")
def artifact(checkpoint: Path) -> Artifact:
    return build(checkpoint.parent / "artifact", checkpoint)


@pytest.fixture(scope="module")
def verify(artifact: Artifact) -> Engine:
    return load_stage(artifact, "target_verify", "onnxruntime")


@pytest.fixture(scope="module")
def advance(artifact: Artifact) -> Engine:
    return load_stage(artifact, "target_advance", "onnxruntime")


PROMPTS = st.lists(st.integers(3, 300), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=PROMPTS, accepted=st.lists(st.integers(0, BLOCK - 1), min_size=1, max_size=4))
def test_state_after_rounds_equals_plain_state(
    verify: Engine, advance: Engine, prompt: list[int], accepted: list[int]
) -> None:
    plain, speculative = AdvancingTarget(advance), VerifyingTarget(verify)
    anchor = speculative.commit(prompt).anchor
    assert plain.advance(prompt) == anchor
    for count in accepted:
        truth = _continuation(advance, plain, anchor, BLOCK)
        drafts = truth[: BLOCK - 1]
        if count < BLOCK - 1:
            drafts[count] = (drafts[count] + 1) % 300
        block = speculative.verify(anchor, drafts)
        assert block.accepted == count
        assert list(block.next_ids) == truth[: count + 1]
        for token in (anchor, *truth[:count]):
            plain.advance([token])
        anchor = block.anchor
        assert speculative.length == plain.length
        _assert_equal(_state(speculative.states, plain.length), _state(plain.states, plain.length))


@pytest.mark.parametrize("count", range(BLOCK))
def test_state_equals_transformers(checkpoint: Path, verify: Engine, advance: Engine, count: int) -> None:
    prompt = [9, 44, 300, 7, 7, 120]
    plain, speculative = AdvancingTarget(advance), VerifyingTarget(verify)
    anchor = speculative.commit(prompt).anchor
    plain.advance(prompt)
    truth = _continuation(advance, plain, anchor, BLOCK)
    drafts = truth[: BLOCK - 1]
    if count < BLOCK - 1:
        drafts[count] = (drafts[count] + 1) % 300
    assert speculative.verify(anchor, drafts).accepted == count
    expected: dict[str, Array] = {}
    for index, layer in enumerate(state_after(Target(checkpoint), [*prompt, anchor, *truth[:count]])):
        if isinstance(layer, AttentionState):
            expected[f"layers.{index}.key_cache"] = layer.keys.numpy()
            expected[f"layers.{index}.value_cache"] = layer.values.numpy()
        else:
            expected[f"layers.{index}.conv_state"] = layer.conv.numpy().T
            expected[f"layers.{index}.recurrent_state"] = layer.recurrent.numpy().transpose(0, 2, 1)
    _assert_equal(_state(speculative.states, speculative.length), expected)


def test_rows_of_a_batch_do_not_touch_each_other(verify: Engine) -> None:
    """Two sequences of different lengths, forced and valid counts in one call, against each alone."""
    rows = [([5, 9, 11, 200], 3, 4, [1, 2]), ([17, 3], 1, 2, [8, 8, 250, 31])]
    width = max(len(ids) for ids, *_ in rows)
    together = _call(verify, rows, width, judged=2)
    for index, row in enumerate(rows):
        alone = _call(verify, [row], len(row[0]), judged=row[2] - row[1] + 1)
        for name in ("accepted", "anchor"):
            assert together[name][index] == alone[name][0]
        committed = len(row[3]) + row[1] + int(alone["accepted"][0])
        for name, value in alone.items():
            if name.startswith("next."):
                trimmed = slice(None, committed if "cache" in name else None)
                expected, actual = value[0], together[name][index]
                if "cache" in name:
                    expected, actual = expected[:, trimmed], actual[:, trimmed]
                np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def test_a_drafters_tap_on_the_last_layer_is_before_the_final_norm(tmp_path: Path) -> None:
    geometry = TargetGeometry()
    target = write_target(tmp_path / "target", geometry)
    draft = write_dflash2(tmp_path / "draft", geometry, DraftGeometry(target_layer_ids=(2,)))
    engine = load_stage(build(tmp_path / "artifact", target, draft), "target_verify", "onnxruntime")
    ids = [5, 77, 130, 9]
    features = VerifyingTarget(engine).commit(ids).features
    assert features is not None
    expected = Target(target).forward(ids).features((2,)).numpy()
    np.testing.assert_allclose(features.read()[0], expected, rtol=1e-4, atol=1e-4)


def _continuation(advance: Engine, plain: AdvancingTarget, anchor: int, count: int) -> list[int]:
    """Return the next greedy tokens after the anchor, from a copy of the plain state."""
    copy = AdvancingTarget(advance)
    for name, buffer in copy.states.snapshot().items():
        buffer.write(plain.states.snapshot()[name].read())
    copy.length = plain.length
    tokens = [anchor]
    for _ in range(count):
        tokens.append(copy.advance([tokens[-1]]))
    return tokens[1:]


def _state(states: States, length: int) -> dict[str, Array]:
    return {
        name: buffer.read()[0][:, :length] if name.endswith("_cache") else buffer.read()[0]
        for name, buffer in states.snapshot().items()
    }


def _assert_equal(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        # Relative to the tensor's size: float32 noise of large elements reaches the small ones through the products.
        scale = max(1.0, float(np.abs(expected[name]).max(initial=0.0)))
        np.testing.assert_allclose(value, expected[name], rtol=TOLERANCE, atol=TOLERANCE * scale, err_msg=name)


def _call(
    engine: Engine, rows: list[tuple[list[int], int, int, list[int]]], width: int, judged: int
) -> dict[str, Array]:
    """Run `target_verify` on rows of (ids, forced, valid, committed before); the tokens before run as a prompt
    first."""
    states = States(engine, batch=len(rows))
    single = []
    for *_, before in rows:
        target = VerifyingTarget(engine)
        target.commit(before)
        single.append(target.states.snapshot())
    for name, buffer in states.snapshot().items():
        buffer.write(np.concatenate([snapshot[name].read() for snapshot in single]))
    values = {
        "input_ids": [ids + [0] * (width - len(ids)) for ids, *_ in rows],
        "forced": [forced for _, forced, _, _ in rows],
        "valid": [valid for _, _, valid, _ in rows],
        "lengths": [len(before) for *_, before in rows],
        "judged": list(range(judged)),
    }
    named: dict[str, Buffer] = {}
    for name, value in values.items():
        named[name] = engine.allocate("int64", integers(value).shape)
        named[name].write(integers(value))
    named |= {name: engine.allocate("int64", (len(rows),)) for name in ("accepted", "anchor")}
    bound = named | states.bindings(0)
    engine.bind(bound).run(0)
    return {name: buffer.read() for name, buffer in bound.items()}
