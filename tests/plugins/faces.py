"""Every face of a custom operator that runs without a GPU, as a plain function of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime
import torch
from onnxscript import GraphBuilder, OpBuilder

from dfc.plugins.grouped_conv.body import emit_grouped_conv
from dfc.plugins.grouped_conv.reference import grouped_conv
from dfc.plugins.selector.body import emit_selector
from dfc.plugins.selector.reference import candidate_selector
from dfc.runtime.engine import Array
from dfc.runtime.engines.onnxruntime import library

Emit = Callable[[OpBuilder, dict[str, ir.Value]], tuple[ir.Value, ...]]


def convolve_by_reference(
    hidden: Array, coefficients: Array, base: Array, residual: Array | None, side: int, taps: int, group_size: int
) -> Array:
    """Run the torch operator."""
    tensors = [None if x is None else torch.from_numpy(x) for x in (hidden, coefficients, base, residual)]
    result: Array = grouped_conv(*tensors, side, taps, group_size).numpy()
    return result


def convolve_by_body(
    hidden: Array, coefficients: Array, base: Array, residual: Array | None, side: int, taps: int, group_size: int
) -> Array:
    """Run the function body in onnxruntime."""
    inputs = {"hidden": hidden, "coefficients": coefficients, "base": base}
    if residual is not None:
        inputs["residual"] = residual

    def emit(op: OpBuilder, values: dict[str, ir.Value]) -> tuple[ir.Value, ...]:
        return (emit_grouped_conv(op, *values.values(), side=side, taps=taps, group_size=group_size),)

    return run_body(inputs, emit)[0]


def select_by_reference(inputs: Mapping[str, Array], temperature: Array, uniforms: Array) -> tuple[Array, Array]:
    """Run the torch operator: tokens and q."""
    tensors = [torch.from_numpy(array) for array in (*inputs.values(), temperature, uniforms)]
    tokens, q = candidate_selector(*tensors)
    return tokens.numpy(), q.numpy()


def select_by_body(inputs: Mapping[str, Array], temperature: Array, uniforms: Array) -> tuple[Array, Array]:
    """Run the function body in onnxruntime: tokens and q."""
    slots = inputs["candidate_ids"].shape[1]

    def emit(op: OpBuilder, values: dict[str, ir.Value]) -> tuple[ir.Value, ...]:
        tokens, q = emit_selector(op, *values.values(), max_slots=slots)
        assert q is not None
        return tokens, q

    tokens, q = run_body({**inputs, "temperature": temperature, "uniforms": uniforms}, emit)
    return tokens, q


def select_greedily_by_body(inputs: Mapping[str, Array], max_slots: int) -> Array:
    """Run the function body of the greedy walk, which is what the draft graph carries."""

    def emit(op: OpBuilder, values: dict[str, ir.Value]) -> tuple[ir.Value, ...]:
        tokens, q = emit_selector(op, *values.values(), max_slots=max_slots)
        assert q is None
        return (tokens,)

    return run_body(dict(inputs), emit)[0]


def run_body(inputs: Mapping[str, Array], emit: Emit) -> list[Array]:
    """Author a graph whose every dimension is dynamic and run it."""
    graph = ir.Graph((), (), nodes=(), opset_imports={"": 24}, name="body")
    op = GraphBuilder(graph).op
    values = {}
    for name, array in inputs.items():
        shape = tuple(f"{name}_{axis}" for axis in range(array.ndim))
        values[name] = ir.val(name, ir.DataType.from_numpy(array.dtype), shape)
        graph.inputs.append(values[name])
    for index, output in enumerate(emit(op, values)):
        output.name = f"output_{index}"
        graph.outputs.append(output)
    model = ir.serde.serialize_model(ir.Model(graph, ir_version=10)).SerializeToString()
    options = library().SessionOptions()
    options.use_per_session_threads = False
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    results: list[Array] = session.run(None, {name: np.ascontiguousarray(array) for name, array in inputs.items()})
    return results
