"""Calls a registered quick plugin as TensorRT's builder does: the creator, types, shapes, autotuning, launch, kernel.

Everything runs in TensorRT's own Python classes. Its symbolic dimensions live in the builder, which is not here, so
expressions are evaluated as they are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class TensorType:
    """An input as the network declares it: dtype, the size of each axis in one run, and which of them are left open."""

    dtype: str
    shape: tuple[int, ...]
    dynamic: tuple[int, ...] = ()


@dataclass(frozen=True)
class BuiltPlugin:
    """What TensorRT has of a plugin after the build, for one shape of its inputs."""

    output_dtypes: tuple[str, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    tactics: tuple[int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory: int
    extra_arguments: tuple[int, ...]
    kernel_name: str
    ptx: str

    @property
    def ptx_parameters(self) -> tuple[str, ...]:
        """Types of the kernel's parameters as its PTX has them."""
        entry = re.search(rf"\.entry\s+{self.kernel_name}\s*\(([^)]*)\)", self.ptx)
        assert entry is not None
        return tuple(re.findall(r"\.param\s+\.(\w+)", entry[1]))


def build_plugin(
    monkeypatch: pytest.MonkeyPatch, name: str, attributes: dict[str, int], inputs: Sequence[TensorType]
) -> BuiltPlugin:
    """Create the plugin `dfc::name` from ONNX attributes and take it through a build."""
    import tensorrt as trt
    import tensorrt.plugin._tensor as quick_tensors

    # The two places where expressions would pass into the builder.
    monkeypatch.setattr(trt, "DimsExprs", lambda length: [None] * length)
    monkeypatch.setattr(quick_tensors, "SymExprImpl", lambda expression: expression._expr.value)
    builder = _expression_builder(trt)

    fields = [trt.PluginField(key, np.array([value]), trt.PluginFieldType.INT64) for key, value in attributes.items()]
    creator = trt.get_plugin_registry().get_creator(name, "1", "dfc")
    request = trt.QuickPluginCreationRequest.STRICT_AOT
    plugin = creator.create_plugin(name, "dfc", trt.PluginFieldCollection(fields), trt.TensorRTPhase.BUILD, request)

    input_dtypes = [getattr(trt.DataType, tensor.dtype) for tensor in inputs]
    output_dtypes = plugin.get_output_data_types(input_dtypes, [len(tensor.shape) for tensor in inputs])
    symbolic = [
        [builder.dimension(size, axis not in tensor.dynamic) for axis, size in enumerate(tensor.shape)]
        for tensor in inputs
    ]
    output_shapes = [
        tuple(extent.value for extent in extents) for extents in plugin.get_output_shapes(symbolic, [], builder)
    ]
    shapes = [*(tensor.shape for tensor in inputs), *output_shapes]
    tensors = [_described(trt, *pair) for pair in zip(shapes, [*input_dtypes, *output_dtypes], strict=True)]
    combinations = plugin.get_supported_format_combinations(tensors, len(inputs))
    assert [tensor.type for tensor in combinations] == [*input_dtypes, *output_dtypes]
    plugin.configure_plugin(tensors[: len(inputs)], tensors[len(inputs) :])
    tactics = plugin.get_valid_tactics()
    plugin.set_tactic(tactics[0])
    launch, extra = SimpleNamespace(), _ExtraArguments()
    plugin.get_launch_params(symbolic, tensors, len(inputs), launch, extra, builder)
    kernel_name, ptx = plugin.get_kernel(
        [tensor.desc for tensor in tensors[: len(inputs)]], [tensor.desc for tensor in tensors[len(inputs) :]]
    )
    assert len(extra) == extra.nbSymExprs
    return BuiltPlugin(
        output_dtypes=tuple(dtype.name for dtype in output_dtypes),
        output_shapes=tuple(output_shapes),
        tactics=tuple(tactics),
        grid=(launch.grid_x, launch.grid_y, launch.grid_z),
        block=(launch.block_x, launch.block_y, launch.block_z),
        shared_memory=launch.shared_mem,
        extra_arguments=tuple(extra[index] for index in range(len(extra))),
        kernel_name=kernel_name,
        ptx=ptx.decode(),
    )


class _ExtraArguments(dict[int, int]):
    """What the builder offers for the integers between inputs and outputs."""

    nbSymExprs = 0  # noqa: N815  (the builder's name)


def _expression_builder(trt: Any) -> Any:
    operations = trt.DimensionOperation

    class Dimension(trt.IDimensionExpr):  # type: ignore[misc]
        value: int
        constant: bool

        def is_constant(self) -> bool:
            return self.constant

        def get_constant_value(self) -> int:
            assert self.constant, "the builder does not know the value of an open dimension"
            return self.value

    class Builder:
        def dimension(self, value: int, constant: bool) -> Dimension:
            # TensorRT's class has no constructor to be called from Python.
            made: Dimension = Dimension.__new__(Dimension)
            made.value, made.constant = value, constant
            return made

        def constant(self, value: int) -> Dimension:
            return self.dimension(value, True)

        def operation(self, operation: Any, first: Dimension, second: Dimension) -> Dimension:
            a, b = first.value, second.value
            values = {
                operations.SUM: lambda: a + b,
                operations.SUB: lambda: a - b,
                operations.PROD: lambda: a * b,
                operations.FLOOR_DIV: lambda: a // b,
                operations.CEIL_DIV: lambda: -(-a // b),
                operations.MAX: lambda: max(a, b),
                operations.MIN: lambda: min(a, b),
            }
            return self.dimension(values[operation](), first.constant and second.constant)

    return Builder()


def _described(trt: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Describe a tensor as the builder does while it times tactics."""
    described, plain = trt.DynamicPluginTensorDesc(), trt.PluginTensorDesc()
    plain.dims, plain.type, plain.format = trt.Dims(shape), dtype, trt.TensorFormat.LINEAR
    described.desc = plain
    described.min = described.opt = described.max = trt.Dims(shape)
    return described
