"""Weights become engine inputs: an engine holds none, so that all engines of an artifact share one copy on the device.

A product with a weight from an input takes about 10% longer than with a constant (H200, TensorRT-RTX 1.6.1, 8 rows: 61
us for 54 at 5,120 x 17,408, and 50 us a matrix when two are merged). For it an engine is built in seconds, is small,
and there can be one for every shape; prefill, verification and drafters read the checkpoint's own bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import onnx_ir as ir

from dfc.compiler.passes.lowering import continue_building, detach, replace_outputs, stored_tensor

FLOAT = ir.DataType.FLOAT
BFLOAT16 = ir.DataType.BFLOAT16


@dataclass(frozen=True)
class WeightInput:
    """An engine input that holds tensors of the checkpoint, one behind the other along the first axis.

    ``dtype`` is what the engine takes; parts of another type are converted when they are loaded.
    """

    name: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    parts: tuple[ir.ExternalTensor, ...]


def take_weights_out(graph: ir.Graph) -> list[WeightInput]:
    """Turn every initializer that lies in a checkpoint's file, and every join of some, into a graph input."""
    found = _take_joins_out(graph)
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            weight = _weight_input(str(value.name), (tensor,))
            del graph.initializers[weight.name]
            if value.uses():
                value.const_value, value.dtype = None, weight.dtype
                graph.inputs.append(value)
                found.append(weight)
    return found


def drop_unused_inputs(graph: ir.Graph, weights: Iterable[WeightInput]) -> tuple[WeightInput, ...]:
    """Remove the weights that no node reads and return those that are left."""
    by_name = {value.name: value for value in graph.inputs}
    kept = []
    for weight in weights:
        if by_name[weight.name].uses():
            kept.append(weight)
        else:
            graph.inputs.remove(by_name[weight.name])
    return tuple(kept)


def one_input_per_lookup(graph: ir.Graph, weights: Iterable[WeightInput]) -> tuple[WeightInput, ...]:
    """Give every lookup in an embedding an input of its own: at run time they all get the same address.

    Where several lookups read one input, TensorRT-RTX copies all of it into scratch memory, converted (H200, 248,320 x
    5,120: 3.3 ms a call).
    """
    by_name = {value.name: value for value in graph.inputs}
    found = []
    for weight in weights:
        value = by_name[weight.name]
        found.append(weight)
        lookups = [use for use in value.uses() if use.node.op_type == "Gather"]
        for number, (node, index) in enumerate(lookups[1:], start=2):
            other = replace(weight, name=f"{weight.name}#{number}")
            again = ir.val(other.name, other.dtype, other.shape)
            graph.inputs.append(again)
            node.replace_input_with(index, again)
            found.append(other)
    return tuple(found)


def _take_joins_out(graph: ir.Graph) -> list[WeightInput]:
    """Replace each Concat of weights by one input in which they lie one behind the other."""
    op = continue_building(graph)
    joined: dict[WeightInput, ir.Value] = {}
    for node in [node for node in graph if node.op_type == "Concat"]:
        parts = [stored_tensor(value) for value in node.inputs]
        tensors = tuple(part for part in parts if part is not None)
        if len(tensors) < len(parts) or node.attributes["axis"].as_int() != 0:
            continue
        weight = _weight_input("+".join(str(tensor.name) for tensor in tensors), tensors)
        # A head that runs several steps joins the same weights in each.
        if weight not in joined:
            joined[weight] = ir.val(weight.name, weight.dtype, weight.shape)
            graph.inputs.append(joined[weight])
        replace_outputs(graph, node.outputs, [op.Cast(joined[weight], to=FLOAT)])
        detach(node)
        graph.remove(node)
    graph.sort()
    return list(joined)


def _weight_input(name: str, parts: tuple[ir.ExternalTensor, ...]) -> WeightInput:
    shapes = [tuple(part.shape.numpy()) for part in parts]
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    # Products take bfloat16; vectors keep their precision.
    stored = {part.dtype for part in parts}
    dtype = BFLOAT16 if len(shape) > 1 or len(stored) > 1 else parts[0].dtype
    assert math.prod(shape) == sum(math.prod(part) for part in shapes)
    return WeightInput(name, dtype, shape, parts)
