"""How the public formats store a matrix, written from their descriptions and not from dfc's reader."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def integers(matrix: Tensor, bits: int, group: int, symmetric: bool, scale_type: torch.dtype) -> Integers:
    """Round to integers with a scale (and a zero point) for each group; 0 is a whole row."""
    n, k = matrix.shape
    groups = matrix.reshape(n, -1, group or k)
    largest = 2**bits - 1
    if symmetric:
        scale = groups.abs().amax(-1) / (largest // 2)
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scale = (high - low) / largest
        zero = (-low / scale).round().clamp(0, largest)
    scale = scale.to(scale_type)
    codes = ((groups / scale.double()[..., None]).round() + zero[..., None]).clamp(0, largest)
    back = ((codes - zero[..., None]) * scale.double()[..., None]).reshape(n, k)
    return Integers(codes.reshape(n, k).int(), scale, zero.int(), back)


@dataclass(frozen=True)
class Integers:
    """Codes [N, K] and zero points [N, G] from 0, scales [N, G], and the matrix that they stand for."""

    codes: Tensor
    scale: Tensor
    zero: Tensor
    matrix: Tensor


def words(codes: Tensor, bits: int) -> Tensor:
    """Pack codes [.., C] into int32 words [.., C * bits / 32], the first in the lowest bits."""
    count = 32 // bits
    places = torch.arange(count) * bits
    packed = (codes.long().unflatten(-1, (-1, count)) << places).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def pack_quantized(bits: int, group: int, symmetric: bool, packed_zero_points: bool = True) -> Store:
    """compressed-tensors' packed integers."""

    def store(module: str, matrix: Tensor) -> Layer:
        rounded = integers(matrix, bits, group, symmetric, torch.bfloat16)
        stored = {
            "weight_packed": words(rounded.codes, bits),
            "weight_scale": rounded.scale,
            "weight_shape": torch.tensor(matrix.shape),
        }
        if not symmetric and packed_zero_points:
            stored["weight_zero_point"] = words(rounded.zero.T, bits).T
        elif not symmetric:
            stored["weight_zero_point"] = (rounded.zero - 2 ** (bits - 1)).to(torch.int8)
        return Layer(stored, rounded.matrix)

    return store


def reordered(matrix: Tensor, group: int, symmetric: bool, scale_type: torch.dtype) -> tuple[Integers, Tensor]:
    """Round with groups of columns that do not stand together; returns the group of each column too."""
    k = matrix.shape[1]
    order = torch.randperm(k, generator=torch.Generator().manual_seed(k))
    rounded = integers(matrix[:, order], 4, group, symmetric, scale_type)
    back = order.argsort()
    groups = (torch.arange(k) // group)[back].int()
    return replace(rounded, codes=rounded.codes[:, back], matrix=rounded.matrix[:, back]), groups


def pack_quantized_reordered(module: str, matrix: Tensor) -> Layer:
    """compressed-tensors' packed integers with ``actorder`` group."""
    rounded, groups = reordered(matrix, 32, True, torch.bfloat16)
    stored = {"weight_packed": words(rounded.codes, 4), "weight_scale": rounded.scale, "weight_g_idx": groups}
    return Layer(stored, rounded.matrix)


def int_quantized(module: str, matrix: Tensor) -> Layer:
    """compressed-tensors' int8, one scale a row."""
    rounded = integers(matrix, 8, 0, True, torch.float32)
    return Layer({"weight": (rounded.codes - 128).to(torch.int8), "weight_scale": rounded.scale}, rounded.matrix)


def gptq(bits: int, group: int, stored_less: int, symmetric: bool) -> Store:
    """GPTQ with columns in their order."""

    def store(module: str, matrix: Tensor) -> Layer:
        rounded = integers(matrix, bits, group, symmetric, torch.float16)
        columns = torch.arange(matrix.shape[1]) // (group or matrix.shape[1])
        return _gptq_layer(rounded, columns.int(), bits, stored_less)

    return store


def gptq_reordered(module: str, matrix: Tensor) -> Layer:
    """GPTQ with ``desc_act``."""
    rounded, groups = reordered(matrix, 128, False, torch.float16)
    return _gptq_layer(rounded, groups, 4, 1)


def _gptq_layer(rounded: Integers, groups: Tensor, bits: int, stored_less: int) -> Layer:
    zeros = (rounded.zero - stored_less) & (2**bits - 1)
    stored = {
        "qweight": words(rounded.codes, bits).T,
        "qzeros": words(zeros.T, bits),
        "scales": rounded.scale.T,
        "g_idx": groups,
    }
    return Layer(stored, rounded.matrix)


def awq(module: str, matrix: Tensor) -> Layer:
    """AWQ: of eight neighbours the even ones stand in the lower half of a word."""
    rounded = integers(matrix, 4, 128, False, torch.float16)

    def packed(codes: Tensor) -> Tensor:
        return words(codes.unflatten(-1, (-1, 8))[..., [0, 2, 4, 6, 1, 3, 5, 7]].flatten(-2), 4)

    stored = {"qweight": packed(rounded.codes.T), "qzeros": packed(rounded.zero.T), "scales": rounded.scale.T}
    return Layer(stored, rounded.matrix)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)


def nvfp4(module: str, matrix: Tensor) -> Layer:
    """ModelOpt's NVFP4."""
    n, k = matrix.shape
    groups = matrix.reshape(n, -1, 16)
    whole = (matrix.abs().max() / (6 * FLOAT8_MAX)).float()
    scale = (groups.abs().amax(-1) / 6 / whole.double()).to(torch.float8_e4m3fn)
    spread = (scale.double() * whole.double())[..., None]
    scaled = groups / spread
    nearest = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    back = (E2M1[nearest] * scaled.sign() * spread).reshape(n, k)
    codes = (nearest + 8 * (scaled < 0)).reshape(n, k).to(torch.uint8)
    stored = {
        "weight": codes[:, ::2] | (codes[:, 1::2] << 4),
        "weight_scale": scale,
        "weight_scale_2": whole,
        "input_scale": torch.tensor(0.5),
    }
    return Layer(stored, back)


def compressed(format_name: str, ignore: list[str] | None = None, **weights: object) -> dict[str, object]:
    """Return a compressed-tensors config of one group."""
    section = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": None, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": format_name,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": section, "input_activations": None}},
        "ignore": ["lm_head", "re:^mtp.*"] if ignore is None else ignore,
    }


def not_by_32(module: str) -> bool:
    """The layers that formats leave alone which pack rows: heads of few rows, the output head, the MTP module."""
    return module.startswith("mtp.") or module == "lm_head" or module.endswith(("in_proj_a", "in_proj_b"))


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
AWQ_PLAIN = ["lm_head", "mtp", "in_proj_a", "in_proj_b"]

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}

FORMATS: dict[str, Format] = {
    "fp8, blocks of 128": Format(
        float8_blocks(128, 128, "weight_scale_inv", torch.bfloat16),
        {**FP8, "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "mtp"]},
    ),
    "fp8, one scale a tensor": Format(
        float8_tensor, {**FP8, "activation_scheme": "static", "modules_to_not_convert": None}
    ),
    "compressed-tensors, int4, groups of 32": Format(
        pack_quantized(4, 32, True), compressed("pack-quantized", group_size=32)
    ),
    "compressed-tensors, int4, groups of 128, zero points": Format(
        pack_quantized(4, 128, False),
        compressed("pack-quantized", ["lm_head", "re:.*in_proj_[ab]$", "mtp"], group_size=128, symmetric=False),
        not_by_32,
    ),
    "compressed-tensors, int4, zero points not packed": Format(
        pack_quantized(4, 16, False, packed_zero_points=False),
        compressed("pack-quantized", group_size=16, symmetric=False),
    ),
    "compressed-tensors, int4, a scale a row": Format(
        pack_quantized(4, 0, True), compressed("pack-quantized", strategy="channel")
    ),
    "compressed-tensors, int4, columns reordered": Format(
        pack_quantized_reordered, compressed("pack-quantized", group_size=32, actorder="group")
    ),
    "compressed-tensors, int8, groups of 64, zero points": Format(
        pack_quantized(8, 64, False), compressed("pack-quantized", group_size=64, num_bits=8, symmetric=False)
    ),
    "compressed-tensors, int8, a scale a row": Format(
        int_quantized, compressed("int-quantized", strategy="channel", num_bits=8)
    ),
    "compressed-tensors, fp8, a scale a row": Format(
        float8_blocks(1, 1 << 30, "weight_scale", torch.bfloat16),
        compressed("float-quantized", strategy="channel", num_bits=8, type="float"),
    ),
    "compressed-tensors, fp8, blocks": Format(
        float8_blocks(128, 128, "weight_scale"),
        compressed("float-quantized", strategy="block", block_structure=[128, 128], num_bits=8, type="float"),
    ),
    "gptq": Format(gptq(4, 128, 1, True), GPTQ, not_by_32),
    "gptq, zero points, second layout": Format(
        gptq(4, 32, 0, False), {**GPTQ, "sym": False, "group_size": 32, "checkpoint_format": "gptq_v2"}, not_by_32
    ),
    "gptq, columns reordered": Format(gptq_reordered, {**GPTQ, "desc_act": True, "sym": False}, not_by_32),
    "gptq, int8, a scale a row": Format(
        gptq(8, 0, 1, True), {**GPTQ, "bits": 8, "group_size": -1, "dynamic": {"-:.*mtp.*": {}}}, not_by_32
    ),
    "awq": Format(awq, {**AWQ, "modules_to_not_convert": AWQ_PLAIN}, not_by_32),
    "modelopt, nvfp4": Format(
        nvfp4,
        None,
        files={
            "hf_quant_config.json": {
                "producer": {"name": "modelopt"},
                "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "mtp*"]},
            }
        },
    ),
    "modelopt, fp8": Format(
        float8_tensor, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "mtp.*"]}
    ),
}
