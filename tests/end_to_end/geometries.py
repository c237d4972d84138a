"""What the tests with random checkpoints decode, and the geometries that every drafter of blocks is tested with."""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.random_checkpoints import DraftGeometry, TargetGeometry

NEW_TOKENS = 20
PROMPTS = ((11,), (5, 77, 130, 9, 200), (250, 3, 3, 41, 8, 19, 100, 7, 61, 258, 99, 12))

PLAIN = TargetGeometry()

BLOCK_DRAFTERS = {
    "defaults": (PLAIN, DraftGeometry()),
    "sliding layers, causal by default": (
        replace(PLAIN, seed=5),
        DraftGeometry(windows=(4, 0, 4), num_heads=8, num_kv_heads=1),
    ),
    "sliding layers, not causal, shorter than the block": (
        replace(PLAIN, seed=6),
        DraftGeometry(windows=(5, 5), causal=False, block_size=12),
    ),
}
