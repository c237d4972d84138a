"""What the TensorRT faces of all custom operators have in common, and the registration of all of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import tensorrt as trt
import tensorrt.plugin as trtp

from dfc.plugins.compilation import CompiledKernel
from dfc.plugins.kernel import GeometryError, Launch

PLUGIN_NAMES = {
    ("GroupedConv", 3): "GroupedConv",
    ("GroupedConv", 4): "GroupedConvAdd",
    ("CandidateSelector", 6): "CandidateSelector",
    ("CandidateSelector", 8): "SampledCandidateSelector",
    ("TopCandidates", 1): "TopCandidates",
}
"""The plugin for an ONNX node, by operator and number of inputs: a quick plugin has no optional inputs."""

_DTYPES = {
    trt.DataType.FLOAT: ("float32", "FP32"),
    trt.DataType.BF16: ("bfloat16", "BF16"),
    trt.DataType.INT32: ("int32", "INT32"),
    trt.DataType.INT64: ("int64", "INT64"),
}

Implementation = tuple[str, str, trtp.KernelLaunchParams, trtp.SymExprs]
"""What an ahead-of-time implementation returns: kernel name, PTX, launch parameters, integers after the inputs."""


def register_plugins(capability: str) -> None:
    """Register every plugin with TensorRT, its kernels compiled for a compute capability such as `9.0`.

    TensorRT refuses a second registration with `ValueError`: one process builds for one capability, that of its GPU.
    """
    for operator in ("grouped_conv", "selector", "top_candidates"):
        importlib.import_module(f"dfc.plugins.{operator}.plugin").register(capability)


@functools.cache
def register_once(capability: str) -> None:
    """Register every plugin for a capability unless this process has done so."""
    register_plugins(capability)


def dtype(tensor: trtp.TensorDesc) -> str:
    """Return a tensor's dtype under the name kernels know it by; raise `GeometryError` for any other."""
    return _names(tensor)[0]


def fixed_dimension(tensor: trtp.TensorDesc, axis: int, name: str) -> int:
    """Return a dimension that is compiled into the kernel; raise `GeometryError` where the graph leaves it open."""
    extent = tensor.shape_expr[axis]
    if not extent.is_constant:
        raise GeometryError(f"axis {axis} of input {name} must have a fixed size: the kernel is compiled for it")
    return int(extent.constant_value())


def combination(tensors: Sequence[trtp.TensorDesc]) -> trtp.AutoTuneCombination:
    """Return the one combination a strongly typed network allows, its own dtypes in rows; tactic 1 is the kernel."""
    return trtp.AutoTuneCombination(", ".join(_names(tensor)[1] for tensor in tensors), "LINEAR", [1])


def implementation(kernel: CompiledKernel, launch: Launch[Any]) -> Implementation:
    """Return a compiled kernel and its launch in TensorRT's terms."""
    parameters = trtp.KernelLaunchParams(grid_x=launch.grid, block_x=launch.threads)
    extra_arguments = trtp.SymIntExprs.from_tuple(tuple(trtp.SymInt32(argument) for argument in launch.extra_arguments))
    return kernel.name, kernel.ptx, parameters, extra_arguments


def _names(tensor: trtp.TensorDesc) -> tuple[str, str]:
    """Return a dtype's name for kernels and its name for autotuning."""
    if tensor.dtype not in _DTYPES:
        raise GeometryError(f"kernels do not read {tensor.dtype}; cast the input to bfloat16 or float32 in the graph")
    return _DTYPES[tensor.dtype]
