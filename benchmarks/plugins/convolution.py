"""The grouped convolution beside an empty kernel, a copy of its rows, and the same thing from torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.plugins.floor import copy_rows, empty
from benchmarks.plugins.timing import compare, launches_for
from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from tests.plugins.checks import check_convolution
from tests.plugins.driver import LoadedKernel

TAPS, GROUP_SIZE, SIDE = 2, 16, 1
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def measure(batch: int, block: int, width: int, with_residual: bool, bandwidth: float) -> list[dict[str, Any]]:
    """Time bf16 rows [batch, block, width]; bandwidth is what a copy reaches, in bytes a microsecond."""
    groups = width // GROUP_SIZE
    rows_bytes = 2 * batch * block * width
    # A side's coefficients and kernel are half of what the tensors hold.
    moved = rows_bytes * (3 if with_residual else 2) + 2 * batch * block * TAPS * groups + 2 * TAPS * width
    count = launches_for(moved)
    inputs = [_draw(batch, block, width, with_residual) for _ in range(count)]
    outputs = [torch.empty_like(hidden) for hidden, *_ in inputs]
    dtypes = ("bfloat16", "bfloat16", "bfloat16", "bfloat16" if with_residual else None)
    geometry = GroupedConvGeometry(width, TAPS, GROUP_SIZE, SIDE, *dtypes)
    kernel, launch = LoadedKernel(geometry.kernel()), geometry.launch(batch, block)
    starts = [
        kernel.bind(launch, [tensor for tensor in tensors if tensor is not None], [output])
        for tensors, output in zip(inputs, outputs, strict=True)
    ]
    starts[0]()
    if batch < 1000:
        check_convolution(outputs[0], *inputs[0], SIDE, TAPS, GROUP_SIZE)
    compiled = torch.compile(convolve, dynamic=False)
    timings = compare(
        {
            "empty kernel": [empty] * max(count, 64),
            "copy of the rows": [
                lambda hidden=tensors[0], output=output: copy_rows(hidden, output)
                for tensors, output in zip(inputs, outputs, strict=True)
            ],
            "dfc": starts,
            "dfc, inputs in cache": starts[:1] * max(count, 64),
            "torch.compile": [lambda tensors=tensors: compiled(*tensors) for tensors in inputs],
        }
    )
    shape = f"[{batch}, {block}, {width}]" + (" + residual" if with_residual else "")
    return [
        {
            "operator": "grouped_conv",
            "shape": shape,
            "contender": name,
            "microseconds": timing.median,
            "low": timing.low,
            "high": timing.high,
            "bytes": moved,
            "floor_microseconds": moved / bandwidth,
        }
        for name, timing in timings.items()
    ]


def convolve(
    hidden: torch.Tensor, coefficients: torch.Tensor, base: torch.Tensor, residual: torch.Tensor | None
) -> torch.Tensor:
    """The convolution as one would write it for a compiler: float32 sums, one rounding."""
    batch, block, width = hidden.shape
    groups = width // GROUP_SIZE
    dynamic = coefficients.view(batch, block, 2, TAPS, groups, 1)[:, :, SIDE].float()
    static = base[SIDE].view(TAPS, groups, GROUP_SIZE).float()
    rows = hidden.float().view(batch, block, groups, GROUP_SIZE)
    total = (static[0] + dynamic[:, :, 0]) * rows
    for tap in range(1, TAPS):
        above = torch.nn.functional.pad(rows, (0, 0, 0, 0, tap, 0))[:, :block]
        total = total + (static[tap] + dynamic[:, :, tap]) * above
    total = total.view(batch, block, width)
    return (total if residual is None else total + residual.float()).to(hidden.dtype)


def _draw(batch: int, block: int, width: int, with_residual: bool) -> Inputs:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    hidden, residual = draw(batch, block, width), draw(batch, block, width) if with_residual else None
    return hidden, draw(batch, block, 2 * TAPS * width // GROUP_SIZE), draw(2, TAPS, width), residual
