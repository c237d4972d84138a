"""Safetensors files whose header is real and whose body is a hole: any size is written at once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name to safetensors type (``BF16``, ``F32``, ...) and shape."""

_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1, "F8_E4M3": 1}


def write_sparse_safetensors(file: Path, tensors: Tensors) -> None:
    """Write a file of zeros; tensors lie one behind the other in the order given."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, (dtype, shape) in tensors.items():
        end = position + _BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    write_header(file, json.dumps(header).encode(), position)


def write_header(file: Path, header: bytes, body_size: int) -> None:
    """Write a header as it is, padded to eight bytes, and a hole of `body_size` bytes."""
    header += b" " * (-len(header) % 8)
    with file.open("wb") as stream:
        stream.write(len(header).to_bytes(8, "little") + header)
        stream.truncate(8 + len(header) + body_size)


def write_sharded(directory: Path, tensors: Tensors, shards: int) -> None:
    """Write an index and its shards, the tensors dealt out in turn."""
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = list(tensors)[shard::shards]
        write_sparse_safetensors(directory / name, {tensor: tensors[tensor] for tensor in part})
        weight_map |= dict.fromkeys(part, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
