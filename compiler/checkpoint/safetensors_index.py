"""Which tensors a checkpoint directory holds and where their bytes lie, from the headers alone."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeGuard, cast

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.spec import StorageType, TensorLocation

INDEX_NAME = "model.safetensors.index.json"

_MAX_HEADER_BYTES = 100_000_000
_STORAGE_TYPES: dict[str, StorageType] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64,
}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file, of whatever type: only those that a model needs have to be of a supported one."""

    name: str
    file: Path
    offset: int
    length: int
    dtype: str
    shape: tuple[int, ...]


class TensorIndex:
    """All tensors of a checkpoint directory by name."""

    def __init__(self, directory: Path, tensors: dict[str, StoredTensor]) -> None:
        self.directory = directory
        self._tensors = tensors

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def get(self, name: str) -> StoredTensor | None:
        """Return a tensor of any type, None when there is none of that name."""
        return self._tensors.get(name)

    @property
    def names(self) -> Iterable[str]:
        """Every name."""
        return self._tensors.keys()

    def take(self, expected: dict[str, tuple[int, ...]]) -> dict[str, TensorLocation]:
        """Return the locations of the tensors a model needs.

        Raises:
            CheckpointError: one is missing, or has another shape or a type that cannot be read.
        """
        return {name: self._take(name, shape) for name, shape in expected.items()}

    def _take(self, name: str, shape: tuple[int, ...]) -> TensorLocation:
        stored = self._tensors.get(name)
        if stored is None:
            raise CheckpointError(f"{self.directory} has no tensor {name}, which its config asks for")
        if stored.shape != shape:
            raise CheckpointError(
                f"{stored.file}: tensor {name} has shape {list(stored.shape)} where the config asks for {list(shape)}"
            )
        dtype = _STORAGE_TYPES.get(stored.dtype)
        if dtype is None:
            raise CheckpointError(
                f"{stored.file}: tensor {name} is stored as {stored.dtype}, not as one of {', '.join(_STORAGE_TYPES)}"
            )
        return TensorLocation(name, stored.file, stored.offset, stored.length, dtype, stored.shape)


def read_index(directory: Path) -> TensorIndex:
    """Read the headers of every `.safetensors` file of a checkpoint directory.

    A file that the index does not name adds the tensors that no indexed file has: MTP heads are published beside the
    shards. Of a tensor that it holds as well, in the same type and shape, the indexed copy counts.

    Raises:
        CheckpointError: there is no such file, the index names one that is missing, two files hold different tensors
            of one name, or a header is damaged.
    """
    indexed = _indexed_files(directory)
    files = sorted(directory.glob("*.safetensors"), key=lambda file: (file.name not in indexed, file.name))
    if not files:
        raise CheckpointError(f"{directory} holds no .safetensors file")
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in _read_header(file):
            other = tensors.setdefault(tensor.name, tensor)
            if other is not tensor and not _is_spare_copy(tensor, other, indexed):
                raise CheckpointError(
                    f"{file}: tensor {tensor.name} is also in {other.file.name}; remove one of the two"
                )
    return TensorIndex(directory, tensors)


def _is_spare_copy(tensor: StoredTensor, other: StoredTensor, indexed: set[str]) -> bool:
    """Return whether a second tensor of a name may be passed over: the first, `other`, says the same."""
    if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
        return False
    if other.file.name in indexed and tensor.file.name not in indexed:
        return True
    return tensor.offset == other.offset and tensor.file.samefile(other.file)


def _indexed_files(directory: Path) -> set[str]:
    index = directory / INDEX_NAME
    if not index.exists():
        return set()
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{index} is not a safetensors index: {error}") from error
    named = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise CheckpointError(f"{index} is not a safetensors index: its weight_map does not map tensors to file names")
    names = set(named.values())
    for name in sorted(names):
        # os.path.isfile, unlike Path.is_file, also says no to names that no file can have.
        if os.path.basename(name) != name or not os.path.isfile(directory / name):
            raise CheckpointError(f"{index} names {name!r}, which is not a file of the directory")
    return names


def _read_header(file: Path) -> list[StoredTensor]:
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
            if not 0 < length <= size - 8:
                raise CheckpointError(f"{file} is not a safetensors file: its header does not fit into it")
            if length > _MAX_HEADER_BYTES:
                raise CheckpointError(f"{file} is not a safetensors file: its header has {length} bytes")
            content = json.loads(stream.read(length))
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not a safetensors file: its header is not JSON") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} is not a safetensors file: its header is not an object")
    start = 8 + length
    tensors = [
        _parse_entry(file, name, entry, start, size) for name, entry in content.items() if name != "__metadata__"
    ]
    _refuse_overlaps(file, tensors)
    return tensors


def _refuse_overlaps(file: Path, tensors: list[StoredTensor]) -> None:
    ordered = sorted((tensor for tensor in tensors if tensor.length), key=lambda tensor: tensor.offset)
    for tensor, following in pairwise(ordered):
        if tensor.offset + tensor.length > following.offset:
            raise CheckpointError(f"{file}: tensors {tensor.name} and {following.name} share bytes")


def _parse_entry(file: Path, name: str, entry: object, start: int, size: int) -> StoredTensor:
    if not isinstance(entry, dict):
        raise CheckpointError(f"{file}: the header's entry for {name} is damaged")
    fields = cast("dict[str, object]", entry)
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2):
        raise CheckpointError(f"{file}: the header's entry for {name} is damaged")
    begin, end = offsets
    if not begin <= end <= size - start:
        raise CheckpointError(f"{file} is cut short: tensor {name} ends behind the file's end")
    bits = _BITS.get(dtype)
    if bits is not None and math.prod(shape) * bits != (end - begin) * 8:
        raise CheckpointError(
            f"{file}: tensor {name} of shape {list(shape)} in {dtype} does not have {end - begin} bytes"
        )
    return StoredTensor(name, file, start + begin, end - begin, dtype, tuple(shape))


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
