"""The grouped convolution as TensorRT quick plugins: `dfc::GroupedConv` and, with a residual, `dfc::GroupedConvAdd`."""

# TensorRT reads annotations as objects, so that they cannot be postponed here.
from collections.abc import Sequence

import tensorrt.plugin as trtp

from dfc.plugins.compilation import compile_kernel
from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.tensorrt_plugins import Implementation, combination, dtype, fixed_dimension, implementation

NAME = "dfc::GroupedConv"
ADDING_NAME = "dfc::GroupedConvAdd"


def register(capability: str) -> None:
    """Register both plugins, their kernels compiled for a compute capability such as `9.0`."""

    def implement(tensors: Sequence[trtp.TensorDesc], side: int, taps: int, group_size: int) -> Implementation:
        hidden, *_ = tensors
        dtypes = [dtype(tensor) for tensor in tensors]
        geometry = GroupedConvGeometry(fixed_dimension(hidden, 2, "hidden"), taps, group_size, side, *dtypes)
        kernel = compile_kernel(geometry.kernel(), capability)
        return implementation(kernel, geometry.launch(hidden.shape_expr[0], hidden.shape_expr[1]))

    def describe(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        side: int,
        taps: int,
        group_size: int,
    ) -> trtp.TensorDesc:
        return hidden.like()

    def tune(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        outputs: tuple[trtp.TensorDesc],
    ) -> list[trtp.AutoTuneCombination]:
        return [combination((hidden, coefficients, base, outputs[0]))]

    def implement_plain(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        side: int,
        taps: int,
        group_size: int,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> Implementation:
        return implement((hidden, coefficients, base), side, taps, group_size)

    def describe_adding(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        residual: trtp.TensorDesc,
        side: int,
        taps: int,
        group_size: int,
    ) -> trtp.TensorDesc:
        return residual.like()

    def tune_adding(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        residual: trtp.TensorDesc,
        outputs: tuple[trtp.TensorDesc],
    ) -> list[trtp.AutoTuneCombination]:
        return [combination((hidden, coefficients, base, residual, outputs[0]))]

    def implement_adding(
        hidden: trtp.TensorDesc,
        coefficients: trtp.TensorDesc,
        base: trtp.TensorDesc,
        residual: trtp.TensorDesc,
        side: int,
        taps: int,
        group_size: int,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> Implementation:
        return implement((hidden, coefficients, base, residual), side, taps, group_size)

    trtp.register(NAME)(describe)
    trtp.autotune(NAME)(tune)
    trtp.aot_impl(NAME)(implement_plain)
    trtp.register(ADDING_NAME)(describe_adding)
    trtp.autotune(ADDING_NAME)(tune_adding)
    trtp.aot_impl(ADDING_NAME)(implement_adding)
