"""What a model family gives the target stages: hidden rows, layer outputs and states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from dfc.artifacts import Role


@dataclass(frozen=True)
class Rows:
    """The rows of one call: ``input_ids`` [N, T] at positions ``lengths`` [N] and on; `valid` [N] of them count."""

    input_ids: ir.Value
    lengths: ir.Value
    valid: ir.Value
    capacity: int


@dataclass(frozen=True)
class Committed:
    """The rows a verified call keeps: the first ``count`` [N] int64 of each sequence, ``mask`` [N, T, 1] true for
    them."""

    count: ir.Value
    mask: ir.Value


@dataclass(frozen=True)
class StateUpdate:
    """One cache or state of the model: its graph input ``name``, and its value after the call.

    ``after(committed)`` builds the value when only the first rows of each sequence are committed. For a cache that is
    the same value: rows past the sequence's length are never read and are overwritten later.
    """

    name: str
    shape: tuple[int | str, ...]
    role: Role
    after_all: ir.Value
    after: Callable[[Committed], ir.Value]


@dataclass(frozen=True)
class Trunk:
    """The model without its head: ``hidden`` [N, T, H] after the final norm, each decoder layer's output before it."""

    hidden: ir.Value
    layer_outputs: tuple[ir.Value, ...]
    states: tuple[StateUpdate, ...]
