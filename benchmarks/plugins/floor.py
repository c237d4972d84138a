"""What no kernel can be faster than: one that does nothing, and copies."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from benchmarks.plugins.timing import compare

_TILE = 2048


@triton.jit
def _nothing():  # type: ignore[no-untyped-def]
    pass


@triton.jit
def _copy(source, target, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(target + offsets, tl.load(source + offsets))


def empty() -> None:
    """Launch a kernel that does nothing."""
    _nothing[(1,)](num_warps=1)


def copy_rows(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy elements, 16 bytes a thread; their number must be a multiple of the tile."""
    assert source.numel() % _TILE == 0
    _copy[(source.numel() // _TILE,)](source, target, _TILE, num_warps=8)


def copy_bandwidth() -> float:
    """Return what a copy of 2 GiB reaches, in bytes read and written a microsecond."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    timing = compare({"copy": [lambda: copy_rows(source, target)] * 3})["copy"]
    return 2 * source.nbytes / timing.median
