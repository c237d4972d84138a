"""The artifact's weights in GPU memory: each once, whatever number of engines reads it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from dfc.artifacts import Artifact, Weight
from dfc.runtime.engine import Array
from dfc.runtime.engines.cuda import ITEM_SIZES, CudaDevice, to_bfloat16
from dfc.runtime.errors import RunError


class DeviceWeights:
    """Loads weights when an engine first wants them; names that stand for the same bytes share them."""

    def __init__(self, device: CudaDevice, artifact: Artifact) -> None:
        self._device = device
        self._artifact = artifact
        self._loaded: dict[Weight, Any] = {}

    def address(self, name: str) -> int:
        """Return where a weight lies.

        Raises:
            RunError: the manifest does not know it, or there is no room.
        """
        weight = self._artifact.manifest.weights.get(name)
        if weight is None:
            raise RunError(f"{self._artifact.root} has no weight {name}, which an engine reads; build it again")
        if weight not in self._loaded:
            self._loaded[weight] = self._load(name, weight)
        return int(self._loaded[weight].handle)

    def _load(self, name: str, weight: Weight) -> Any:
        buffer = self._device.allocate(math.prod(weight.shape) * ITEM_SIZES[weight.dtype], f"weight {name}")
        offset = 0
        for values in parts_of(self._artifact, weight, weight.dtype):
            self._device.upload(buffer, offset, values)
            offset += values.nbytes
        return buffer


def parts_of(artifact: Artifact, weight: Weight, dtype: str) -> Iterator[Array]:
    """Yield the bytes of a weight's parts, one after the other, in a type."""
    for part in weight.parts:
        stored = np.memmap(artifact.path(part.file), np.uint8, "r", part.offset, (part.length,))
        yield convert(stored, part.dtype, dtype)


def convert(data: Array, stored: str, wanted: str) -> Array:
    """Return a tensor's bytes in another float type."""
    if stored == wanted:
        return data
    if stored == "bfloat16":
        values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = data.view(stored).astype(np.float32)
    return (to_bfloat16(values) if wanted == "bfloat16" else values.astype(wanted)).view(np.uint8)
