"""`dfc::CandidateSelector` in standard operators, without a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import onnx_ir as ir
from onnxscript import OpBuilder

OP_TYPE = "CandidateSelector"

FLOAT = ir.DataType.FLOAT
INT64 = ir.DataType.INT64


def emit_selector(
    op: OpBuilder,
    candidate_ids: ir.Value,
    candidate_logits: ir.Value,
    projected: ir.Value,
    predecessor_codebook: ir.Value,
    successor_codebook: ir.Value,
    anchor: ir.Value,
    temperature: ir.Value | None = None,
    uniforms: ir.Value | None = None,
    *,
    max_slots: int,
) -> tuple[ir.Value, ir.Value | None]:
    """Choose one candidate per slot, each given the one before it.

    candidate_ids [N, S, K] int64 and candidate_logits [N, S, K]; projected [N, S, R]; codebooks [V, R]; anchor [N]
    int64; S <= max_slots. The score of candidate b after token a is ``logit(b) + sum_r A[a, r] * projected[r] * B[b,
    r]``. Greedy rows take the highest score, the lowest index on ties. With temperature [N] and uniforms [N, S], rows
    with a temperature above 0 draw by inverse CDF from softmax(score / temperature). Returns tokens [N, S] int64 and,
    when sampling, q [N, S, K]: the distribution each token was drawn from.
    """
    scores = _lattice(op, candidate_ids, candidate_logits, projected, predecessor_codebook, successor_codebook, anchor)
    following = op.ArgMax(scores, axis=-1, keepdims=0)
    probabilities = None
    if temperature is not None:
        assert uniforms is not None
        probabilities, following = _draw(op, scores, following, temperature, uniforms)
    choices = _walk(op, following, max_slots)
    tokens = op.Squeeze(op.GatherElements(candidate_ids, op.Unsqueeze(choices, [2]), axis=2), [2])
    if probabilities is None:
        return tokens, None
    # A slot's distribution is the lattice row of the choice before it; the first slot has one predecessor only.
    before = op.Concat(op.Mul(op.Slice(choices, [0], [1], [1]), 0), op.Slice(choices, [0], [-1], [1]), axis=1)
    q = op.GatherND(probabilities, op.Unsqueeze(before, [2]), batch_dims=2)
    return tokens, q


def lower(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
    """Write the body in place of a node."""
    inputs = cast("Sequence[ir.Value]", node.inputs)
    tokens, q = emit_selector(op, *inputs, max_slots=node.attributes["max_slots"].as_int())
    return [tokens] if q is None else [tokens, q]


def _lattice(
    op: OpBuilder,
    candidate_ids: ir.Value,
    candidate_logits: ir.Value,
    projected: ir.Value,
    predecessor_codebook: ir.Value,
    successor_codebook: ir.Value,
    anchor: ir.Value,
) -> ir.Value:
    """Return [N, S, K, K]: score of candidate (last axis) after each candidate of the slot before it.

    Every predecessor of the first slot is the anchor, so that its rows are all the same.
    """
    first = op.Mul(op.Slice(candidate_ids, [0], [1], [1]), 0)
    anchors = op.Add(first, op.Unsqueeze(anchor, [1, 2]))
    before = op.Concat(anchors, op.Slice(candidate_ids, [0], [-1], [1]), axis=1)
    rows = _rows(op, predecessor_codebook, before)
    columns = _rows(op, successor_codebook, candidate_ids)
    factors, logits = (op.Unsqueeze(_float32(op, value), [2]) for value in (projected, candidate_logits))
    edges = op.MatMul(op.Mul(rows, factors), op.Transpose(columns, perm=[0, 1, 3, 2]))
    return op.Add(edges, logits)


def _rows(op: OpBuilder, codebook: ir.Value, ids: ir.Value) -> ir.Value:
    """Look rows up first and convert only those."""
    rows = op.Gather(codebook, ids, axis=0)
    return rows if codebook.dtype == FLOAT else op.Cast(rows, to=FLOAT)


def _float32(op: OpBuilder, value: ir.Value) -> ir.Value:
    return value if value.dtype in (None, FLOAT) else op.Cast(value, to=FLOAT)


def _draw(
    op: OpBuilder, scores: ir.Value, greedy: ir.Value, temperature: ir.Value, uniforms: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return the distributions [N, S, K, K] and the candidate drawn after each predecessor [N, S, K]."""
    per_row = op.Unsqueeze(temperature, [1, 2, 3])
    is_greedy = op.LessOrEqual(per_row, op.Constant(value=ir.tensor([0.0], dtype=FLOAT)))
    one = op.Constant(value=ir.tensor([1.0], dtype=FLOAT))
    softmax = op.Softmax(op.Div(scores, op.Where(is_greedy, one, per_row)), axis=-1)
    passed = op.GreaterOrEqual(op.Unsqueeze(uniforms, [2, 3]), op.CumSum(softmax, op.Constant(value_int=-1)))
    count = op.Shape(scores, start=3, end=4)
    drawn = op.Min(op.ReduceSum(op.Cast(passed, to=INT64), [3], keepdims=0), op.Sub(count, op.Constant(value_ints=[1])))
    one_hot = op.Cast(op.Equal(op.Unsqueeze(greedy, [3]), op.Range(0, op.Squeeze(count, [0]), 1)), to=FLOAT)
    probabilities = op.Where(is_greedy, one_hot, softmax)
    return probabilities, op.Where(op.Squeeze(is_greedy, [3]), greedy, drawn)


def _walk(op: OpBuilder, following: ir.Value, max_slots: int) -> ir.Value:
    """Return [N, S]: the candidate of each slot on the walk that starts at the anchor.

    ``following`` [N, S, K] maps a slot's predecessor to its candidate. Composing the maps of 1, 2, 4, .. neighbours
    takes log2 steps where a loop would take S (an engine with a loop cannot be captured into a CUDA graph). A map that
    reaches back to the anchor does not depend on where it starts, so that past the front any index, 0, will do.
    """
    distance = 1
    while distance < max_slots:
        earlier = op.Pad(following, [distance, -distance], None, [1])
        following = op.GatherElements(following, earlier, axis=2)
        distance *= 2
    return op.Gather(following, 0, axis=2)
