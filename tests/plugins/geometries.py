"""Geometries of the published DFlash2 checkpoints (semantics C), as the kernels see them."""

from __future__ import annotations

from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.selector.launch import SelectorGeometry

CAPABILITIES = ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")

# (hidden size, block size): Qwen3.8-27B, Muse-Glimmer-30B, GLM-5.3, GLM-5.3-Flash. All have 2 taps, groups of 16,
# selector rank 256 and 16 candidates.
CHECKPOINTS = {"qwen3.8-27b": (5120, 8), "muse-glimmer": (6656, 16), "glm-5.3": (6144, 8), "glm-5.3-flash": (4096, 8)}


def convolutions(width: int) -> list[GroupedConvGeometry]:
    """Return the convolutions of a bf16 drafter: before the sublayer, and after it with the residual in both dtypes."""
    dtypes = ("bfloat16", "bfloat16", "bfloat16")
    return [
        GroupedConvGeometry(width, 2, 16, 0, *dtypes),
        GroupedConvGeometry(width, 2, 16, 1, *dtypes, "bfloat16"),
        GroupedConvGeometry(width, 2, 16, 1, *dtypes, "float32"),
    ]


def selectors(block: int) -> list[SelectorGeometry]:
    """Return the selector of a bf16 drafter, sampled and greedy."""
    dtypes = ("int64", "float32", "float32", "bfloat16")
    return [SelectorGeometry(16, 256, block - 1, sampled, *dtypes) for sampled in (True, False)]
