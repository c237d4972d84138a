"""Tensors that an artifact holds in another form than its checkpoint: where they go, and writing them one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

from dfc.artifacts.paths import CONVERTED_NAME
from dfc.compiler.checkpoint.quantisation.weight import Array, ComputedTensor, Part, read_stored
from dfc.compiler.checkpoint.spec import StorageType, TargetSpec, TensorLocation
from dfc.compiler.errors import BuildError

CONVERTED = Path(CONVERTED_NAME)
"""Name of the file of converted tensors, in the artifact's folder for the checkpoint's weights."""

_COPIED_BYTES = 64 << 20

_SAFETENSORS: dict[StorageType, tuple[str, int]] = {
    "float32": ("F32", 4),
    "bfloat16": ("BF16", 2),
    "float16": ("F16", 2),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "uint8": ("U8", 1),
    "int32": ("I32", 4),
}
"""Name and item size."""


@dataclass(frozen=True)
class Conversion:
    """The file of converted tensors, not yet written."""

    header: bytes
    tensors: tuple[ComputedTensor, ...]

    def write(self, path: Path, report: Callable[[str], None]) -> None:
        """Write the file; `report` gets a line now and then.

        Raises:
            CheckpointError: a tensor's content is damaged.
            BuildError: the file cannot be written.
        """
        total = sum(_bytes(tensor) for tensor in self.tensors)
        done = shown = 0
        try:
            with path.open("xb") as file:
                file.write(self.header)
                for tensor in self.tensors:
                    start = file.tell()
                    for piece in tensor.pieces():
                        file.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
                    assert file.tell() - start == _bytes(tensor), tensor.name
                    done += _bytes(tensor)
                    if done * 20 // total > shown:
                        shown = done * 20 // total
                        report(f"converting weights, {shown * 5}%")
        except OSError as error:
            raise BuildError(f"cannot write the converted weights: {error.strerror or error}") from error


def plan_conversion(spec: TargetSpec) -> tuple[TargetSpec, Conversion | None]:
    """Return the target with a place for every tensor, and what has to be written for it; None when nothing has.

    Of a file of which something is converted the artifact keeps nothing: what else is needed of it is copied.
    """
    computed = [*spec.computed.values(), *(part for part in _parts(spec) if isinstance(part, ComputedTensor))]
    if not computed:
        return spec, None
    left = {file for part in computed for file in part.sources}
    located = [part for part in (*spec.tensors.values(), *_parts(spec)) if isinstance(part, TensorLocation)]
    copies = [_copy(location) for location in located if location.file in left]
    # Wide items first: every tensor lies at a multiple of its item size, and none has a gap before it.
    tensors = sorted((*computed, *copies), key=lambda tensor: (-_SAFETENSORS[tensor.dtype][1], tensor.name))
    ends = list(accumulate(_bytes(tensor) for tensor in tensors))
    header = _header(tensors, ends)
    places = {
        tensor.name: TensorLocation(
            tensor.name, CONVERTED, len(header) + end - _bytes(tensor), _bytes(tensor), tensor.dtype, tensor.shape
        )
        for tensor, end in zip(tensors, ends, strict=True)
    }

    def place(part: Part) -> Part:
        moved = isinstance(part, ComputedTensor) or part.file in left
        return places[part.name] if moved else part

    plain = {name: places[name] if location.file in left else location for name, location in spec.tensors.items()}
    plain |= {name: places[name] for name in spec.computed}
    quantised = {name: weight.with_parts(place) for name, weight in spec.quantised.items()}
    return replace(spec, tensors=plain, quantised=quantised, computed={}), Conversion(header, tuple(tensors))


def checkpoint_files(spec: TargetSpec) -> list[Path]:
    """Return the checkpoint's files that the artifact reads as they are."""
    parts = (*spec.tensors.values(), *_parts(spec))
    return sorted({part.file for part in parts if isinstance(part, TensorLocation) and part.file != CONVERTED})


def _parts(spec: TargetSpec) -> Iterable[Part]:
    return (part for weight in spec.quantised.values() for part in weight.parts.values())


def _copy(location: TensorLocation) -> ComputedTensor:
    def pieces() -> Iterator[Array]:
        stored = read_stored(location)
        for start in range(0, len(stored), _COPIED_BYTES):
            yield stored[start : start + _COPIED_BYTES]

    return ComputedTensor(location.name, location.dtype, location.shape, (location.file,), pieces)


def _bytes(tensor: ComputedTensor) -> int:
    return math.prod(tensor.shape) * _SAFETENSORS[tensor.dtype][1]


def _header(tensors: list[ComputedTensor], ends: list[int]) -> bytes:
    entries = {
        tensor.name: {
            "dtype": _SAFETENSORS[tensor.dtype][0],
            "shape": list(tensor.shape),
            "data_offsets": [end - _bytes(tensor), end],
        }
        for tensor, end in zip(tensors, ends, strict=True)
    }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
