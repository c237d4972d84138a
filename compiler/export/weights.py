"""A checkpoint's tensors as initializers that point into its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

import onnx_ir as ir

from dfc.compiler.checkpoint.quantisation.weight import Part, QuantisedWeight
from dfc.compiler.checkpoint.spec import StorageType, TensorLocation
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder

_STORAGE: Mapping[StorageType, ir.DataType] = {
    "float32": ir.DataType.FLOAT,
    "bfloat16": ir.DataType.BFLOAT16,
    "float16": ir.DataType.FLOAT16,
    "float8_e4m3fn": ir.DataType.FLOAT8E4M3FN,
    "uint8": ir.DataType.UINT8,
    "int32": ir.DataType.INT32,
}


class Weights:
    """The tensors of one checkpoint, attached to a stage on first use.

    ``folder`` is where the artifact keeps the checkpoint's files, relative to its ``weights`` directory; external data
    locations are ``<folder>/<file name>``.
    """

    def __init__(
        self,
        stage: StageBuilder,
        tensors: Mapping[str, TensorLocation],
        folder: str,
        quantised: Mapping[str, QuantisedWeight] = MappingProxyType({}),
    ) -> None:
        self._stage = stage
        self._tensors = tensors
        self._quantised = quantised
        self._folder = folder
        self._stored: dict[str, ir.Value] = {}
        self._float32: dict[str, ir.Value] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._quantised[name].shape if name in self._quantised else self._tensors[name].shape

    def stored(self, name: str) -> ir.Value:
        """Return the tensor as it is stored: for lookups, which convert only the rows they take."""
        if name not in self._stored:
            quantised = self._quantised.get(name)
            stored = self._attach(name, self._tensors[name]) if quantised is None else self._dequantised(quantised)
            self._stored[name] = stored
        return self._stored[name]

    def _dequantised(self, weight: QuantisedWeight) -> ir.Value:
        parts = (weight.values, weight.scales, weight.zero_points, weight.tensor_scale, weight.order)
        value = ops.dequantised(
            self._stage.op,
            [None if part is None else self._attach(part.name, part) for part in parts],
            kind=weight.kind,
            block_rows=weight.block_rows,
            block_columns=weight.block_columns,
        )
        value.shape = ir.Shape(weight.shape)
        return value

    def _attach(self, name: str, location: Part) -> ir.Value:
        assert isinstance(location, TensorLocation), "a tensor that the build computes has a place before graphs do"
        tensor = ir.ExternalTensor(
            location=str(PurePosixPath(self._folder, location.file.name)),
            offset=location.offset,
            length=location.length,
            dtype=_STORAGE[location.dtype],
            shape=ir.Shape(location.shape),
            name=f"{self._folder}.{name}",
        )
        return self._stage.weight(f"{self._folder}.{name}", tensor)

    def float32(self, name: str) -> ir.Value:
        """Return the tensor in float32; the conversion is a constant that a backend folds when it loads or builds."""
        if name not in self._float32:
            stored = self.stored(name)
            is_float32 = stored.dtype == ir.DataType.FLOAT
            self._float32[name] = stored if is_float32 else self._stage.op.Cast(stored, to=ir.DataType.FLOAT)
        return self._float32[name]
