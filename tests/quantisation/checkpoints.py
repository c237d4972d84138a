"""Quantised checkpoints written by hand from the public formats, each beside its weights dequantised in float64.

A format says how one linear layer [N, K] is stored and what its config holds; everything else stays bfloat16.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.oracle.random_checkpoints import TargetGeometry, write_target

GEOMETRY = TargetGeometry(
    hidden_size=128, intermediate_size=384, value_head_dim=32, layers="gaga", dtype=torch.bfloat16, shards=1
)

Stored = dict[str, Tensor]
Store = Callable[[str, Tensor], "Layer"]


@dataclass(frozen=True)
class Layer:
    """What is stored of a linear layer, by suffix, and its matrix in float64."""

    stored: Stored
    matrix: Tensor


@dataclass(frozen=True)
class Format:
    """``store`` gets a module's name and float64 matrix; ``plain`` says which modules stay as they are."""

    store: Store
    config: Mapping[str, Any] | None
    plain: Callable[[str], bool] = lambda module: module.startswith("mtp.") or module == "lm_head"
    files: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Pair:
    """A quantised checkpoint and the plain one with the same numbers."""

    quantised: Path
    plain: Path


def write_pair(directory: Path, published: Format, geometry: TargetGeometry = GEOMETRY) -> Pair:
    """Write both checkpoints of a format."""
    plain = write_target(directory / "plain", geometry)
    tensors = load_file(plain / "model.safetensors")
    stored: Stored = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if tensor.ndim != 2 or module.endswith("embed_tokens") or published.plain(module):
            stored[name] = tensor
            continue
        layer = published.store(module, tensor.double())
        stored |= {f"{module}.{suffix}": part.contiguous() for suffix, part in layer.stored.items()}
        tensors[name] = layer.matrix.float()
    save_file(tensors, plain / "model.safetensors")
    return Pair(write_like(plain, directory / "quantised", published, stored), plain)


def write_like(source: Path, directory: Path, published: Format, stored: Stored) -> Path:
    """Write the quantised checkpoint in two shards, with the config and tokenizer of the plain one."""
    directory.mkdir()
    config = json.loads((source / "config.json").read_text())
    if published.config is not None:
        config["quantization_config"] = dict(published.config)
    files = {"config.json": config, **(published.files or {})}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    for name in ("tokenizer.json", "generation_config.json"):
        (directory / name).write_bytes((source / name).read_bytes())
    weight_map = {}
    for shard, names in enumerate((list(stored)[::2], list(stored)[1::2]), start=1):
        file = f"model-{shard:05d}-of-00002.safetensors"
        save_file({name: stored[name] for name in names}, directory / file)
        weight_map |= dict.fromkeys(names, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def change_config(checkpoint: Path, **fields: Any) -> None:
    """Change fields of a checkpoint's quantization_config; None removes one."""
    config = json.loads((checkpoint / "config.json").read_text())
    section = config["quantization_config"] | fields
    config["quantization_config"] = {name: value for name, value in section.items() if value is not None}
    (checkpoint / "config.json").write_text(json.dumps(config))


def change_tensors(checkpoint: Path, change: Callable[[Stored], None]) -> None:
    """Change the tensors of a quantised checkpoint, all of them in one dictionary."""
    index = checkpoint / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    tensors = {name: load_file(checkpoint / file)[name] for name, file in weight_map.items()}
    change(tensors)
    for file in set(weight_map.values()):
        (checkpoint / file).unlink()
    index.unlink()
    save_file(tensors, checkpoint / "model.safetensors")


def in_other_geometry(**changes: Any) -> TargetGeometry:
    """Return the common geometry with changes."""
    return replace(GEOMETRY, **changes)
