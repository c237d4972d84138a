"""The references and function bodies on bfloat16 rows: float32 arithmetic, one rounding."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import pytest
import torch
from onnxscript import OpBuilder

from dfc.plugins.grouped_conv.body import emit_grouped_conv
from dfc.plugins.grouped_conv.reference import grouped_conv
from dfc.plugins.selector.body import emit_selector
from dfc.plugins.selector.reference import candidate_selector
from tests.plugins.checks import check_convolution, check_walk
from tests.plugins.faces import run_body

SIDE, TAPS, GROUP_SIZE = 1, 3, 4
BFLOAT16, FLOAT = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def cast(op: OpBuilder, value: ir.Value) -> ir.Value:
    """Round inside the graph: numpy has no bfloat16 to feed."""
    rounded: ir.Value = op.Cast(value, to=BFLOAT16)
    rounded.dtype = BFLOAT16
    return rounded


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Draw numbers that the dtype holds exactly."""
    return torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("residual_dtype", [None, torch.bfloat16, torch.float32])
def test_grouped_convolution(residual_dtype: torch.dtype | None) -> None:
    generator = torch.Generator().manual_seed(0)
    batch, block, width = 2, 7, 32
    tensors = {
        "hidden": draw(generator, batch, block, width),
        "coefficients": draw(generator, batch, block, 2 * TAPS * width // GROUP_SIZE),
        "base": draw(generator, 2, TAPS, width),
    }
    residual = None if residual_dtype is None else draw(generator, batch, block, width, dtype=residual_dtype)
    dtype = residual_dtype or torch.bfloat16
    arguments = (*tensors.values(), residual)
    expected = grouped_conv(*arguments, SIDE, TAPS, GROUP_SIZE)
    assert expected.dtype == dtype
    check_convolution(expected, *arguments, SIDE, TAPS, GROUP_SIZE)
    meta = [None if tensor is None else tensor.to("meta") for tensor in arguments]
    assert grouped_conv(*meta, SIDE, TAPS, GROUP_SIZE).dtype == dtype

    def emit(op: OpBuilder, values: dict[str, ir.Value]) -> tuple[ir.Value, ...]:
        added = values.pop("residual", None)
        inputs = [cast(op, value) for value in values.values()]
        if added is not None and residual_dtype == torch.bfloat16:
            added = cast(op, added)
        result = emit_grouped_conv(op, *inputs, added, side=SIDE, taps=TAPS, group_size=GROUP_SIZE)
        return (op.Cast(result, to=FLOAT),)

    feeds = {**tensors, **({} if residual is None else {"residual": residual})}
    (output,) = run_body({name: tensor.float().numpy() for name, tensor in feeds.items()}, emit)
    actual = torch.from_numpy(output)
    assert torch.equal(actual, actual.to(dtype).float()), "the output was not rounded to its dtype"
    check_convolution(actual.to(dtype), *arguments, SIDE, TAPS, GROUP_SIZE)


def test_selector() -> None:
    generator = torch.Generator().manual_seed(1)
    batch, slots, count, rank, vocabulary = 4, 6, 5, 16, 40
    inputs: dict[str, torch.Tensor] = {
        "candidate_ids": torch.rand(batch, slots, vocabulary, generator=generator).argsort(-1)[..., :count],
        "candidate_logits": draw(generator, batch, slots, count),
        "projected": draw(generator, batch, slots, rank),
        "predecessor_codebook": draw(generator, vocabulary, rank),
        "successor_codebook": draw(generator, vocabulary, rank),
        "anchor": torch.randint(0, vocabulary, (batch,), generator=generator),
    }
    temperature, uniforms = torch.tensor([0.0, 0.6, 1.0, 1.3]), torch.rand(batch, slots, generator=generator)

    def emit(op: OpBuilder, values: dict[str, ir.Value]) -> tuple[ir.Value, ...]:
        names = ("candidate_logits", "projected", "predecessor_codebook", "successor_codebook")
        rounded: dict[str, Any] = {name: cast(op, values[name]) for name in names}
        tokens, q = emit_selector(op, *{**values, **rounded}.values(), max_slots=slots)
        assert q is not None
        return tokens, q

    feeds = {**inputs, "temperature": temperature, "uniforms": uniforms}
    arrays = {name: (x.float() if x.dtype == torch.bfloat16 else x).numpy() for name, x in feeds.items()}
    tokens, q = (torch.from_numpy(array) for array in run_body(arrays, emit))
    check_walk(inputs, temperature, uniforms, tokens, q)
    reference_tokens, reference_q = candidate_selector(*inputs.values(), temperature, uniforms)
    assert reference_q.dtype == torch.float32
    check_walk(inputs, temperature, uniforms, reference_tokens, reference_q)
    meta = [tensor.to("meta") for tensor in feeds.values()]
    assert [output.dtype for output in candidate_selector(*meta)] == [torch.int64, torch.float32]
