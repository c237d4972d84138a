"""`dfc::grouped_conv` in PyTorch."""

from __future__ import annotations

import torch


@torch.library.custom_op("dfc::grouped_conv", mutates_args=())
def grouped_conv(
    hidden: torch.Tensor,
    coefficients: torch.Tensor,
    base: torch.Tensor,
    residual: torch.Tensor | None,
    side: int,
    taps: int,
    group_size: int,
) -> torch.Tensor:
    """Return ``sum_t (base[side, t, c] + coefficients[j, side, t, c // group_size]) * hidden[j - t, c]`` (+ residual).

    hidden and residual [N, B, H]; coefficients [N, B, 2 * taps * groups] in (side, tap, group) order; base [2, taps,
    H]. The sum is in float32 (float64 for float64 rows) and rounded once: to the dtype of the residual stream where one
    is given, else of hidden (semantics B.3).
    """
    batch, block, width = hidden.shape
    precision = torch.promote_types(hidden.dtype, torch.float32)
    dynamic = coefficients.view(batch, block, 2, taps, width // group_size)[:, :, side].to(precision)
    kernel = base[side].to(precision) + dynamic.repeat_interleave(group_size, dim=-1)
    rows = hidden.to(precision)
    total = torch.zeros_like(rows) if residual is None else residual.to(precision).clone()
    for tap in range(min(taps, block)):
        total[:, tap:] += kernel[:, tap:, tap] * rows[:, : block - tap]
    return total.to(hidden.dtype if residual is None else residual.dtype)


@grouped_conv.register_fake
def _(
    hidden: torch.Tensor,
    coefficients: torch.Tensor,
    base: torch.Tensor,
    residual: torch.Tensor | None,
    side: int,
    taps: int,
    group_size: int,
) -> torch.Tensor:
    return torch.empty_like(hidden if residual is None else residual)
