"""How the public formats store a matrix, written from their descriptions and not from dfc's reader."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from tests.quantisation.checkpoints import Format, Layer, Store

FLOAT8_MAX = 448.0


def float8_blocks(rows: int, columns: int, suffix: str, scale_type: torch.dtype = torch.float32) -> Store:
    """Return what stores e4m3 with one scale for each block."""

    def store(module: str, matrix: Tensor) -> Layer:
        n, k = matrix.shape
        block_rows, block_columns = min(rows, n), min(columns, k)
        padded = pad(matrix, (0, -k % block_columns, 0, -n % block_rows))
        blocks = padded.unflatten(1, (-1, block_columns)).unflatten(0, (-1, block_rows))
        scale = (blocks.abs().amax(dim=(1, 3)) / FLOAT8_MAX).to(scale_type)
        spread = scale.double().repeat_interleave(block_rows, 0).repeat_interleave(block_columns, 1)[:n, :k]
        values = (matrix / spread).clamp(-FLOAT8_MAX, FLOAT8_MAX).to(torch.float8_e4m3fn)
        return Layer({"weight": values, suffix: scale}, values.double() * spread)

    return store


def float8_tensor(module: str, matrix: Tensor, suffix: str = "weight_scale") -> Layer:
    """One scale, a scalar, for all of a matrix."""
    scale = (matrix.abs().max() / FLOAT8_MAX).float()
    values = (matrix / scale.double()).to(torch.float8_e4m3fn)
    stored = {"weight": values, suffix: scale, "input_scale": torch.tensor(0.5)}
    return Layer(stored, values.double() * scale.double())


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}

FORMATS: dict[str, Format] = {
    "fp8, blocks of 128": Format(
        float8_blocks(128, 128, "weight_scale_inv", torch.bfloat16),
        {**FP8, "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "mtp"]},
    ),
    "fp8, one scale a tensor": Format(
        float8_tensor, {**FP8, "activation_scheme": "static", "modules_to_not_convert": None}
    ),
}
