"""Reads a Hugging Face checkpoint directory whole, as float32 tensors, for the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


def read_config(directory: Path) -> dict[str, Any]:
    """The parsed ``config.json``."""
    config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return config


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor the checkpoint's index (or its only file) names, cast to float32."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
        files = {name: load_file(directory / name) for name in sorted(set(weight_map.values()))}
        return {tensor: files[name][tensor].float() for tensor, name in weight_map.items()}
    return {name: tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()}


def tokenizer_size(directory: Path) -> int | None:
    """One past the largest token id of ``tokenizer.json``, added tokens included; None when there is no such file."""
    path = directory / "tokenizer.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    ids = [*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])]
    return int(max(ids)) + 1
