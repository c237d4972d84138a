"""The shapes one engine is built for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

PIECE = 256
"""Rows of a cache that one part of the attention takes."""


@dataclass(frozen=True)
class EngineShape:
    """Static sizes of one engine: what every symbolic dimension is, and how many rows of a cache it looks at.

    ``piece`` is how many of those rows one part of the attention takes; it divides ``context``. Kernels for static
    shapes take two thirds of the time of those for dynamic ones (H200, TensorRT-RTX 1.6.1), and engines hold no
    weights, so that several are cheap.
    """

    dimensions: Mapping[str, int]
    context: int
    piece: int = PIECE

    @property
    def rows(self) -> int:
        """Rows T of a call."""
        return self.dimensions["T"]


def set_static_shapes(graph: ir.Graph, shape: EngineShape) -> None:
    """Replace the symbolic dimensions of the graph's inputs and outputs."""
    for value in (*graph.inputs, *graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape([static_dimension(dimension, shape) for dimension in value.shape])


def static_dimension(dimension: int | str | ir.SymbolicDim, shape: EngineShape) -> int:
    """Return the size of a dimension."""
    if isinstance(dimension, int):
        return dimension
    name = dimension if isinstance(dimension, str) else dimension.value
    assert name is not None
    return shape.dimensions[name]


def sizes(value: ir.Value | None) -> tuple[int, ...]:
    """Return the static shape of a value."""
    assert value is not None
    assert value.shape is not None
    return tuple(value.shape.numpy())
