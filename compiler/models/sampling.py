"""The distribution a token is drawn from, and the draw, in standard operators and without a loop or a sort.

The order is that of transformers' processors: temperature, top-k, top-p, min-p. Top-k and top-p keep a token x when the
number, or the probability, of the tokens above x is below a limit: both search the lowest score kept, which costs the
same for any limit, a different one in every row, and fits a CUDA graph.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.export import ops
from dfc.compiler.models.layers import FLOAT, indices, take_rows

RUN = 512
"""Tokens that a draw looks at together."""

EXCLUDED = -1.0e30
"""What is added to the score of a token that is not kept: its exponential is 0."""


class SamplingParameters(NamedTuple):
    """Of each row, [N]: ``temperature`` (0: the most likely token), ``top_k`` (0: all), ``top_p`` in (0, 1],
    ``min_p`` in [0, 1]."""

    temperature: ir.Value
    top_k: ir.Value
    top_p: ir.Value
    min_p: ir.Value


def distribution(op: OpBuilder, logits: ir.Value, parameters: SamplingParameters) -> ir.Value:
    """Return probabilities [N, J, V] float32 of logits [N, J, V]."""
    temperature, top_p, min_p = (
        op.Unsqueeze(value, [1, 2]) for value in (parameters.temperature, parameters.top_p, parameters.min_p)
    )
    top_k = op.Unsqueeze(op.Cast(parameters.top_k, to=FLOAT), [1, 2])
    greedy = op.LessOrEqual(temperature, 0.0)
    scores = op.Div(logits, op.Where(greedy, 1.0, temperature))

    one = op.Constant(value=ir.tensor([1.0], dtype=FLOAT))
    # A limit that is never reached keeps every token.
    count = op.Cast(op.Shape(logits, start=2, end=3), to=FLOAT)
    kept = ops.keep_heaviest(op, scores, one, op.Where(op.LessOrEqual(top_k, 0.0), op.Add(count, 1.0), top_k))
    within = _softmax_of_kept(op, scores, kept)
    kept = op.And(kept, ops.keep_heaviest(op, scores, within, op.Where(op.GreaterOrEqual(top_p, 1.0), 2.0, top_p)))
    kept = op.And(kept, op.GreaterOrEqual(within, op.Mul(min_p, op.ReduceMax(within, [2], keepdims=1))))
    sampled = _softmax_of_kept(op, scores, kept)

    best = op.ArgMax(logits, axis=-1, keepdims=1)
    one_hot = op.Cast(op.Equal(indices(op, logits, 2), best), to=FLOAT)
    is_greedy = op.Cast(greedy, to=FLOAT)
    return op.Add(op.Mul(one_hot, is_greedy), op.Mul(sampled, op.Sub(1.0, is_greedy)))


def _softmax_of_kept(op: OpBuilder, scores: ir.Value, kept: ir.Value) -> ir.Value:
    """Return the softmax over the kept scores, exactly 0 for the others.

    Sums and products instead of Where, for which onnxruntime takes several times as long.
    """
    excluded = op.Mul(op.Sub(1.0, op.Cast(kept, to=FLOAT)), EXCLUDED)
    return op.Softmax(op.Add(scores, excluded), axis=-1)


def draw(op: OpBuilder, probabilities: ir.Value, uniform: ir.Value, *, vocab_size: int) -> ir.Value:
    """Return the token [N] at which the sum of probabilities [N, vocab_size], which need not add up to 1, passes
    ``uniform`` [N] in [0, 1) of their total.

    The search is for a run of tokens first and then inside it: both sums are short, and the total is a parallel one.
    """
    runs = -(-vocab_size // RUN)
    padded = op.Pad(probabilities, [0, 0, 0, runs * RUN - vocab_size], 0.0)
    by_run = op.Reshape(padded, [0, runs, RUN])
    of_runs = op.ReduceSum(by_run, [2], keepdims=0)
    target = op.Mul(op.ReduceSum(of_runs, [1], keepdims=1), op.Unsqueeze(uniform, [1]))
    run, before = _find(op, of_runs, target)
    inside = op.Squeeze(take_rows(op, by_run, run), [1])
    place, _ = _find(op, inside, op.Sub(target, before))
    return op.Squeeze(op.Add(op.Mul(run, RUN), place), [1])


def _find(op: OpBuilder, weights: ir.Value, target: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return where the sum of weights [N, K] passes ``target`` [N, 1], and the sum before it; both [N, 1].

    Only positive weights count: a parallel sum may step at others by rounding.
    """
    sums = op.CumSum(weights, 1)
    places = indices(op, weights, 1)
    positive = op.Greater(weights, 0.0)
    behind = op.Shape(weights, start=1, end=2)
    first = op.ReduceMin(op.Where(op.And(positive, op.Greater(sums, target)), places, behind), [1], keepdims=1)
    last = op.ReduceMax(op.Where(positive, places, 0), [1], keepdims=1)
    place = op.Min(first, last)
    return place, op.GatherElements(op.Sub(sums, weights), place, axis=1)
