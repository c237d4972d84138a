"""Whatever a checkpoint has for names, a complaint about it is one short line that can be printed."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dfc.compiler.checkpoint import CheckpointError, check_fits, load_dflash2, load_target
from dfc.compiler.checkpoint.safetensors_index import INDEX_NAME, read_index
from tests.checkpoint.small import small_drafter, small_target
from tests.checkpoint.sparse import write_header, write_sparse_safetensors

HOSTILE = {
    "line": "a\nb",
    "terminal": "a\x1b[2Jb",
    "surrogate": "a\ud800b",
    "long": "a" + "b" * 100_000,
}


def complaint(read: Callable[[], object]) -> str:
    """Return the message, checked to be one line that every terminal takes and nobody has to scroll."""
    with pytest.raises(CheckpointError) as caught:
        read()
    message = str(caught.value)
    assert message.isprintable(), message
    assert message.encode().decode() == message
    assert len(message) < 3000
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    return message


def entry(dtype: str = "F32", shape: object = 1, end: int = 4) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape if isinstance(shape, list) else [shape], "data_offsets": [0, end]}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "header",
    [
        lambda name: {name: 3},
        lambda name: {name: entry(shape=9)},
        lambda name: {name: entry(end=9)},
        lambda name: {name: entry(), f"{name}2": entry()},
        lambda name: {"t": entry(name)},
    ],
)
def test_names_in_a_header(tmp_path: Path, name: str, header: Callable[[str], dict[str, Any]]) -> None:
    file = tmp_path / "model.safetensors"
    write_header(file, json.dumps(header(name)).encode(), 8)
    message = complaint(lambda: read_index(tmp_path).take({"t": (1,)}))
    assert message.startswith(str(tmp_path))


@pytest.mark.parametrize("shape", [[10**300] * 20, [0] * 20_000])
def test_shapes_in_a_header(tmp_path: Path, shape: list[int]) -> None:
    header = {"t": entry(shape=shape, end=0)}
    write_header(tmp_path / "model.safetensors", json.dumps(header).encode(), 8)
    assert "tensor t" in complaint(lambda: read_index(tmp_path).take({"t": (1,)}))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_one_name_in_two_files(tmp_path: Path, name: str) -> None:
    for file in ("a.safetensors", "b.safetensors"):
        write_sparse_safetensors(tmp_path / file, {name: ("F32", (1,))})
    assert "b.safetensors: tensor a" in complaint(lambda: read_index(tmp_path))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_in_an_index(tmp_path: Path, name: str) -> None:
    write_sparse_safetensors(tmp_path / "model.safetensors", {"t": ("F32", (1,))})
    (tmp_path / INDEX_NAME).write_text(json.dumps({"weight_map": {"t": name}}))
    assert f"{INDEX_NAME} names 'a" in complaint(lambda: read_index(tmp_path))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", lambda name: [name]),
        ("model_type", lambda name: f"qwen3_5_moe{name}"),
        ("layer_types", lambda name: [name] * 4),
        ("hidden_act", lambda name: name),
        ("eos_token_id", lambda name: name),
    ],
)
def test_values_in_a_targets_config(tmp_path: Path, name: str, field: str, value: Callable[[str], Any]) -> None:
    small = small_target()
    small.config[field] = value(name)
    assert f"config.json: {field} " in complaint(lambda: load_target(small.write(tmp_path)))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("field", ["architectures", "layer_types", "mask_token"])
def test_values_in_a_drafters_config(tmp_path: Path, name: str, field: str) -> None:
    drafter = small_drafter()
    if field == "mask_token":
        drafter.config["dflash_config"] |= {"mask_token": name, "mask_token_id": None}
    else:
        drafter.config[field] = [name] * 2
    assert f"config.json: {field}" in complaint(lambda: load_dflash2(drafter.write(tmp_path)))


def test_numbers_past_every_bound(tmp_path: Path) -> None:
    target, drafter = small_target(), small_drafter()
    drafter.config["dflash_config"]["target_layer_ids"] = [10**4200, 0, 1]
    spec = load_target(target.write(tmp_path / "target"))
    message = complaint(lambda: check_fits(load_dflash2(drafter.write(tmp_path / "draft")), spec))
    assert "target_layer_ids names layer 1000" in message
    target.config["eos_token_id"] = 10**4200
    assert "eos_token_id names 1000" in complaint(lambda: load_target(target.write(tmp_path / "target")))


def test_a_directory_whose_name_has_lines(tmp_path: Path) -> None:
    assert r"a\nb is not a checkpoint directory" in complaint(lambda: load_target(tmp_path / "a\nb"))


def test_an_ordinary_message_is_left_as_it_is() -> None:
    assert (
        str(CheckpointError("/models/Größe 27B/日本: field x is 'a\\nb'"))
        == "/models/Größe 27B/日本: field x is 'a\\nb'"
    )
