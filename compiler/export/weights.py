"""A checkpoint's tensors as initializers that point into its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import onnx_ir as ir

from dfc.compiler.checkpoint.spec import TensorLocation
from dfc.compiler.export.stage import StageBuilder

_STORAGE = {
    "float32": ir.DataType.FLOAT,
    "bfloat16": ir.DataType.BFLOAT16,
    "float16": ir.DataType.FLOAT16,
}


class Weights:
    """The tensors of one checkpoint, attached to a stage on first use.

    ``folder`` is where the artifact keeps the checkpoint's files, relative to its ``weights`` directory; external data
    locations are ``<folder>/<file name>``.
    """

    def __init__(self, stage: StageBuilder, tensors: Mapping[str, TensorLocation], folder: str) -> None:
        self._stage = stage
        self._tensors = tensors
        self._folder = folder
        self._stored: dict[str, ir.Value] = {}
        self._float32: dict[str, ir.Value] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._tensors[name].shape

    def stored(self, name: str) -> ir.Value:
        """Return the tensor as it is stored: for lookups, which convert only the rows they take."""
        if name not in self._stored:
            location = self._tensors[name]
            dtype = _STORAGE[location.dtype]
            tensor = ir.ExternalTensor(
                location=str(PurePosixPath(self._folder, location.file.name)),
                offset=location.offset,
                length=location.length,
                dtype=dtype,
                shape=ir.Shape(location.shape),
                name=f"{self._folder}.{name}",
            )
            self._stored[name] = self._stage.weight(f"{self._folder}.{name}", tensor)
        return self._stored[name]

    def float32(self, name: str) -> ir.Value:
        """Return the tensor in float32; the conversion is a constant that a backend folds when it loads or builds."""
        if name not in self._float32:
            stored = self.stored(name)
            is_float32 = stored.dtype == ir.DataType.FLOAT
            self._float32[name] = stored if is_float32 else self._stage.op.Cast(stored, to=ir.DataType.FLOAT)
        return self._float32[name]
