"""The stored tensors of one linear layer, checked as they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.quantisation.weight import Array, read_stored
from dfc.compiler.checkpoint.safetensors_index import StoredTensor, TensorIndex
from dfc.compiler.checkpoint.spec import StorageType, TensorLocation

FLOATS: Mapping[str, StorageType] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
FLOAT8: Mapping[str, StorageType] = {"F8_E4M3": "float8_e4m3fn"}
WORDS: Mapping[str, StorageType] = {"I32": "int32", "U32": "int32"}
OCTETS: Mapping[str, StorageType] = {"U8": "uint8", "I8": "uint8"}


class Module:
    """The tensors ``<name>.<suffix>`` of a checkpoint; ``shape`` [N, K] is the matrix's."""

    def __init__(self, index: TensorIndex, name: str, shape: tuple[int, int]) -> None:
        self._index = index
        self.name = name
        self.shape = shape

    def has(self, suffix: str) -> bool:
        """Return whether there is such a tensor."""
        return f"{self.name}.{suffix}" in self._index

    def is_stored_as(self, suffix: str, dtypes: Mapping[str, StorageType]) -> bool:
        """Return whether there is such a tensor of one of these types."""
        stored = self._index.get(f"{self.name}.{suffix}")
        return stored is not None and stored.dtype in dtypes

    def take(self, suffix: str, dtypes: Mapping[str, StorageType], shape: tuple[int, ...]) -> TensorLocation:
        """Return where a tensor lies; a shape of one element is also that of a scalar.

        Raises:
            CheckpointError: it is missing, or has another type or shape.
        """
        stored = self._stored(suffix)
        if stored.dtype not in dtypes:
            raise CheckpointError(
                f"{stored.file}: tensor {stored.name} is stored as {stored.dtype}; {' or '.join(dtypes)} is wanted"
            )
        if stored.shape != shape and not (math.prod(shape) == math.prod(stored.shape) == 1):
            raise CheckpointError(
                f"{stored.file}: tensor {stored.name} has shape {list(stored.shape)} where {list(shape)} is wanted"
            )
        return TensorLocation(stored.name, stored.file, stored.offset, stored.length, dtypes[stored.dtype], shape)

    def stored_shape(self, suffix: str, rank: int) -> tuple[int, ...]:
        """Return the shape of a tensor of this rank.

        Raises:
            CheckpointError: it is missing, or has another rank.
        """
        stored = self._stored(suffix)
        if len(stored.shape) != rank:
            raise CheckpointError(
                f"{stored.file}: tensor {stored.name} has shape {list(stored.shape)} where {rank} dimensions are wanted"
            )
        return stored.shape

    def error(self, problem: str) -> CheckpointError:
        """Return an error about this layer."""
        return CheckpointError(f"{self._index.directory}: the layer {self.name} {problem}")

    def _stored(self, suffix: str) -> StoredTensor:
        stored = self._index.get(f"{self.name}.{suffix}")
        if stored is None:
            raise CheckpointError(
                f"{self._index.directory} has no tensor {self.name}.{suffix}, which its quantisation asks for"
            )
        return stored


def viewed(location: TensorLocation, shape: tuple[int, ...]) -> TensorLocation:
    """Return the same bytes as uint8 of another shape."""
    assert math.prod(shape) == location.length
    return replace(location, dtype="uint8", shape=shape)


def read_words(location: TensorLocation) -> Array:
    """Return an int32 tensor."""
    return read_stored(location).view("<i4").reshape(location.shape)


def read_floats(location: TensorLocation) -> Array:
    """Return the items of a float tensor as they are stored: their bits as integers, to be moved and not computed
    with."""
    bits = {"float32": "<u4", "bfloat16": "<u2", "float16": "<u2"}[location.dtype]
    return read_stored(location).view(np.dtype(bits)).reshape(location.shape)
