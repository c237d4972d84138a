"""Whatever is wrong with a checkpoint, it is told as a CheckpointError."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dfc.compiler.checkpoint import CheckpointError, load_target
from dfc.compiler.checkpoint.safetensors_index import INDEX_NAME, read_index
from dfc.compiler.models.drafters import load_drafter
from tests.checkpoint.small import small_dflash, small_drafter, small_target, tokenizer
from tests.checkpoint.sparse import write_header, write_sparse_safetensors

# One directory serves all examples: each writes its file anew.
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([-1, 0, 1, 2, 2**31, 2**63, 10**400, 10**18])
    | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip


def only_checkpoint_errors(read: Callable[[], object]) -> bool:
    """Run `read`; return whether it went through, and let any other error out."""
    message = None
    try:
        read()
    except CheckpointError as error:
        message = str(error)
    assert message is None or (message and message.isprintable()), message
    return message is None


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("intact") / "model.safetensors"
    write_sparse_safetensors(file, {"a": ("BF16", (2, 3)), "b": ("F32", (5,)), "c": ("I64", (1,))})
    return file.read_bytes()


def test_every_truncation_is_noticed(tmp_path: Path, intact: bytes) -> None:
    file = tmp_path / "model.safetensors"
    for length in range(len(intact)):
        file.write_bytes(intact[:length])
        assert not only_checkpoint_errors(lambda: read_index(tmp_path)), length
    file.write_bytes(intact)
    assert only_checkpoint_errors(lambda: read_index(tmp_path))


@QUICK
@given(changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(tmp_path: Path, intact: bytes, changes: list[tuple[int, int]]) -> None:
    content = bytearray(intact)
    for position, value in changes:
        content[position % len(content)] = value
    (tmp_path / "model.safetensors").write_bytes(content)
    only_checkpoint_errors(lambda: read_index(tmp_path))


@QUICK
@given(content=st.binary(max_size=80))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    only_checkpoint_errors(lambda: read_index(tmp_path))


@QUICK
@given(entry=st.fixed_dictionaries({}, optional={"dtype": VALUES, "shape": VALUES, "data_offsets": VALUES}) | VALUES)
def test_any_entry(tmp_path: Path, entry: Any) -> None:
    write_header(tmp_path / "model.safetensors", json.dumps({"t": entry}).encode(), 16)
    only_checkpoint_errors(lambda: read_index(tmp_path))


@QUICK
@given(content=VALUES | st.fixed_dictionaries({"weight_map": VALUES | st.dictionaries(st.text(), st.text())}))
def test_any_index(tmp_path: Path, content: Any) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    (tmp_path / INDEX_NAME).write_text(json.dumps(content))
    only_checkpoint_errors(lambda: read_index(tmp_path))


INDEX = b'{"metadata": {"total_size": 8}, "weight_map": {"t": "model.safetensors", "u": "b.safetensors"}}'


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    write_sparse_safetensors(tmp_path / "b.safetensors", {"u": ("F32", (1,))})
    return tmp_path


def test_every_truncation_of_an_index_is_noticed(sharded: Path) -> None:
    for length in range(len(INDEX)):
        (sharded / INDEX_NAME).write_bytes(INDEX[:length])
        assert not only_checkpoint_errors(lambda: read_index(sharded)), length
    (sharded / INDEX_NAME).write_bytes(INDEX)
    assert only_checkpoint_errors(lambda: read_index(sharded))


@QUICK
@given(changes=st.lists(st.tuples(st.integers(0, len(INDEX) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_of_an_index(sharded: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(INDEX)
    for position, value in changes:
        content[position] = value
    (sharded / INDEX_NAME).write_bytes(content)
    only_checkpoint_errors(lambda: read_index(sharded))


@QUICK
@given(name=st.sampled_from(sorted(small_target().config)), value=VALUES)
def test_any_value_in_a_targets_config(tmp_path: Path, name: str, value: Any) -> None:
    small = small_target()
    small.config[name] = value
    only_checkpoint_errors(lambda: load_target(small.write(tmp_path)))


@QUICK
@given(
    name=st.sampled_from(["rope_theta", "partial_rotary_factor", "rope_type", "factor", "type"]),
    section=st.sampled_from(["rope_parameters", "rope_scaling"]),
    value=VALUES,
)
def test_any_rotary_setting(tmp_path: Path, name: str, section: str, value: Any) -> None:
    small = small_target()
    small.config[section] = {name: value}
    only_checkpoint_errors(lambda: load_target(small.write(tmp_path)))


@QUICK
@given(
    name=st.sampled_from(sorted(small_drafter().config)),
    nested=st.sampled_from([*sorted(small_drafter().config["dflash_config"]), "causal", "use_swa", "mask_token"]),
    value=VALUES,
    nested_value=VALUES,
)
def test_any_value_in_a_drafters_config(tmp_path: Path, name: str, nested: str, value: Any, nested_value: Any) -> None:
    target = load_target(small_target().write(tmp_path / "target"))
    for make in (small_drafter, small_dflash):
        for top, changes in (({name: value}, {}), ({}, {nested: nested_value})):
            drafter = make()
            drafter.config["dflash_config"] |= changes
            drafter.config |= top
            only_checkpoint_errors(
                lambda drafter=drafter: load_drafter(drafter.write(tmp_path / "draft"), target, None)
            )


@QUICK
@given(value=VALUES, place=st.sampled_from(["whole", "model", "vocab", "added_tokens", "id"]))
def test_any_tokenizer(tmp_path: Path, value: Any, place: str) -> None:
    small = small_target()
    content: Any = tokenizer(vocabulary=3, added={"<a>": 3})
    if place == "whole":
        content = value
    elif place == "vocab":
        content["model"]["vocab"] = value
    elif place == "id":
        content["added_tokens"][0]["id"] = value
    else:
        content[place] = value
    small.files["tokenizer.json"] = content
    only_checkpoint_errors(lambda: load_target(small.write(tmp_path)))
