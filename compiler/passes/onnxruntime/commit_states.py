"""Committing the recurrent states of all Gated DeltaNet layers at once.

In `target_verify` the graph asks for every layer's state after the committed rows, which is known only at the end.
Running the operator a second time per layer costs as much as the first time. Instead the first run also gives what each
row did to the state, ``S = decay_t S + delta_t k_t``, and one product over all layers applies the committed rows:

    S_c = (prod_t decay_t) S_0 + sum_t (prod_{s > t} decay_s) delta_t k_t    over the committed rows t

The operator gives that for its first 8 rows. A longer call is a prompt chunk, all of whose rows are committed, so that
the state at its end is the one. Artifacts whose rounds have more than 8 rows keep the second run.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export.origins import last_node, made_by, nodes_after, set_origins
from dfc.compiler.export.stage import DFC_DOMAIN
from dfc.compiler.passes.lowering import continue_building, detach, replace_outputs
from dfc.compiler.passes.onnxruntime.gated_delta_net import contributed_gated_delta_net

CAPTURED_ROWS = 8
"""Most rows GatedDeltaNet describes in its `state_update` output."""

INT32, FLOAT = ir.DataType.INT32, ir.DataType.FLOAT


@dataclass(frozen=True)
class _Layer:
    """The node that computes a layer's output, and the node that asks for its committed state."""

    run: ir.Node
    commit: ir.Node


@dataclass(frozen=True)
class _Geometry:
    heads: int
    value_dim: int
    key_heads: int
    key_dim: int


def commit_states(graph: ir.Graph, round_rows: int) -> None:
    """Replace the second run of every layer when rounds have at most CAPTURED_ROWS rows."""
    layers = _find_layers(graph)
    if not layers or round_rows > CAPTURED_ROWS:
        return
    op = continue_building(graph)
    geometry = _geometry(layers[0])
    mask = layers[0].commit.inputs[6]
    last = last_node(graph)
    counts = _captured_counts(op, layers[0].run.inputs[1])
    finals, updates = [], []
    for layer in layers:
        output, final, update = _run_with_updates(op, layer.run, counts)
        set_origins([made_by(output)], [layer.run])
        replace_outputs(graph, layer.run.outputs, [output, final])
        finals.append(final)
        updates.append(update)
    initials = [layer.run.inputs[5] for layer in layers]
    committed = _apply_updates(op, geometry, initials, finals, updates, mask)
    set_origins(nodes_after(graph, last), [layer.commit for layer in layers])
    for layer, state in zip(layers, committed, strict=True):
        # Nothing reads the output of the second run.
        replace_outputs(graph, layer.commit.outputs[1:], [state])
    replaced = [node for layer in layers for node in (layer.run, layer.commit)]
    for node in replaced:
        detach(node)
    graph.remove(replaced)
    graph.sort()


def _find_layers(graph: ir.Graph) -> list[_Layer]:
    nodes = [node for node in graph if node.domain == DFC_DOMAIN and node.op_type == "GatedDeltaNet"]
    runs = {node.inputs[5]: node for node in nodes if len(node.inputs) == 6}
    return [_Layer(runs[node.inputs[5]], node) for node in nodes if len(node.inputs) == 7]


def _geometry(layer: _Layer) -> _Geometry:
    state = layer.run.inputs[5]
    assert state is not None
    assert state.shape is not None
    _, heads, value_dim, key_dim = state.shape
    key_heads = layer.run.attributes["num_key_heads"].as_int()
    assert isinstance(heads, int)
    assert isinstance(value_dim, int)
    assert isinstance(key_dim, int)
    return _Geometry(heads, value_dim, key_heads, key_dim)


def _captured_counts(op: OpBuilder, decay: ir.Value | None) -> ir.Value:
    """Return how many rows of each sequence the operator describes [N]; decay [N, T, heads] of any layer."""
    rows = op.Cast(op.Min(op.Shape(decay, start=1, end=2), [CAPTURED_ROWS]), to=INT32)
    return op.Expand(rows, op.Shape(decay, end=1))


def _run_with_updates(op: OpBuilder, node: ir.Node, counts: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Run the layer; the third result [N, ..] describes its first CAPTURED_ROWS rows."""
    output, final, update = contributed_gated_delta_net(
        op, *node.inputs, counts=counts, state_update_capacity=CAPTURED_ROWS
    )
    for value in (output, final, update):
        value.dtype = FLOAT
    return output, final, update


def _apply_updates(
    op: OpBuilder,
    geometry: _Geometry,
    initials: list[ir.Value | None],
    finals: list[ir.Value],
    updates: list[ir.Value],
    mask: ir.Value | None,
) -> list[ir.Value]:
    """Return each layer's state after the committed rows; `mask` [N, T, 1] names them."""
    layers, rows = len(updates), CAPTURED_ROWS
    heads, key_heads = geometry.heads, geometry.key_heads
    shared = heads // key_heads
    sizes = [rows * heads, rows * key_heads * geometry.key_dim, rows * heads * geometry.value_dim]
    # [layers * N, ..] from here on: a layer is as good as a sequence.
    decays, keys, deltas = op.Split(op.Concat(*updates, axis=0), sizes, axis=1, _outputs=3)
    counts = op.ReduceSum(op.Cast(mask, to=ir.DataType.INT64), [1], keepdims=0)
    kept = op.Tile(op.Less(list(range(rows)), counts), [layers, 1])
    # Rows that the operator did not describe hold anything, so they are replaced, not multiplied by zero.
    logarithms = op.Where(op.Unsqueeze(kept, [2]), op.Log(op.Reshape(decays, [-1, rows, heads])), 0.0)
    after = op.Exp(op.CumSum(logarithms, 1, exclusive=1, reverse=1))
    total = op.Exp(op.ReduceSum(logarithms, [1], keepdims=0))
    deltas = op.Mul(op.Reshape(deltas, [-1, rows, heads, geometry.value_dim]), op.Unsqueeze(after, [3]))
    deltas = op.Where(op.Unsqueeze(kept, [2, 3]), deltas, 0.0)
    keys = op.Where(op.Unsqueeze(kept, [2, 3]), op.Reshape(keys, [-1, rows, key_heads, geometry.key_dim]), 0.0)
    # A key head serves `shared` value heads in a row.
    by_key_head = op.Reshape(op.Transpose(deltas, perm=[0, 2, 3, 1]), [0, key_heads, shared * geometry.value_dim, rows])
    added = op.MatMul(by_key_head, op.Transpose(keys, perm=[0, 2, 1, 3]))
    added = op.Reshape(added, [0, heads, geometry.value_dim, geometry.key_dim])
    replayed = op.Add(op.Mul(op.Concat(*initials, axis=0), op.Unsqueeze(total, [2, 3])), added)
    is_chunk = op.Greater(op.Shape(mask, start=1, end=2), rows)
    states = op.Where(is_chunk, op.Concat(*finals, axis=0), replayed)
    return list(op.Split(states, num_outputs=layers, axis=0, _outputs=layers)) if layers > 1 else [states]
