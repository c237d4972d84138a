"""Frequencies of rotary embeddings, by type."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import (
    LinearScaling,
    Llama3Scaling,
    ProportionalScaling,
    RopeSpec,
    YarnScaling,
)

Frequencies = NDArray[np.float32]

FLOAT = ir.DataType.FLOAT


def rope_tables(op: OpBuilder, rope: RopeSpec, positions: int) -> tuple[ir.Value, ir.Value]:
    """Return cosine and sine [positions, rotary_dim / 2] of ``position * frequency``, times the attention factor.

    The tables are constants computed by nodes, so that an artifact does not store them.
    """
    found, attention_factor = frequencies(rope)
    position = op.Unsqueeze(op.Cast(op.Range(0, positions, 1), to=FLOAT), [1])
    angles = op.Mul(position, op.Constant(value=ir.tensor(found)))
    tables = op.Cos(angles), op.Sin(angles)
    if attention_factor == 1.0:
        return tables
    cosine, sine = (op.Mul(table, attention_factor) for table in tables)
    return cosine, sine


def frequencies(rope: RopeSpec) -> tuple[Frequencies, float]:
    """Return the frequencies [rotary_dim / 2], and what cosines and sines are multiplied by."""
    plain = _plain(rope.theta, rope.rotary_dim)
    scaling = rope.scaling
    if scaling is None:
        return plain, 1.0
    if isinstance(scaling, LinearScaling):
        return plain / np.float32(scaling.factor), 1.0
    if isinstance(scaling, ProportionalScaling):
        rotated = np.arange(len(plain)) < scaling.rotated_pairs
        return np.where(rotated, plain / np.float32(scaling.factor), np.float32(0)), 1.0
    if isinstance(scaling, Llama3Scaling):
        return _llama3(plain, scaling), 1.0
    return _yarn(plain, rope, scaling)


def _plain(theta: float, rotary_dim: int) -> Frequencies:
    exponents = np.arange(0, rotary_dim, 2, dtype=np.float32) / np.float32(rotary_dim)
    return (1.0 / np.float32(theta) ** exponents).astype(np.float32)


def _llama3(plain: Frequencies, scaling: Llama3Scaling) -> Frequencies:
    """Leave short waves, stretch long ones by the factor, and pass from one to the other in between."""
    turns = scaling.original_positions * plain / np.float32(2 * math.pi)
    kept = (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor)
    share = np.clip(kept, 0.0, 1.0)
    return (share * plain + (1.0 - share) * plain / scaling.factor).astype(np.float32)


def _yarn(plain: Frequencies, rope: RopeSpec, scaling: YarnScaling) -> tuple[Frequencies, float]:
    """Leave pairs that turn often within the trained context, stretch those that turn little."""

    def pair_of(turns: float) -> float:
        wave = scaling.original_positions / (turns * 2 * math.pi)
        return rope.rotary_dim * math.log(wave) / (2 * math.log(rope.theta))

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low if high != low else 0.001
    stretched = np.clip((np.arange(len(plain), dtype=np.float32) - low) / width, 0.0, 1.0)
    found = (plain / scaling.factor) * stretched + plain * (1.0 - stretched)
    return found.astype(np.float32), _attention_factor(scaling)


def _attention_factor(scaling: YarnScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor

    def stretch(scale: float) -> float:
        return 0.1 * scale * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0

    numerator, denominator = scaling.scales
    return stretch(numerator) / stretch(denominator) if numerator and denominator else stretch(1.0)
