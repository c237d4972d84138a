"""`GatedDeltaNet` becomes matrix products over blocks of rows: no loop, so that a CUDA graph can hold it.

Within a block that starts from the state S, with G_t the sum of the log decays up to row t, the update of row t is
``u_t = beta_t (v_t - exp(G_t) S k_t - sum_{i<t} exp(G_t - G_i) (k_i . k_t) u_i)``: a unit lower triangular system
(I + L) U = R. Its outputs and the state after any number of rows follow from U in one product each (semantics E; the
chunk form of "Parallelizing Linear Transformers with the Delta Rule over Sequence Length" with the gates of "Gated
Delta Networks"). What does not need the state is computed for all blocks at once. All is float32: the state carries
errors along the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.precision import FLOAT, cast
from dfc.compiler.passes.tensorrt.shapes import EngineShape, sizes

BLOCK = 64
"""Most rows of a block: the triangular system grows with it, the number of steps falls."""

NORM_EPSILON = 1.0e-6
"""Added to the squared norm of queries and keys."""


@dataclass(frozen=True)
class _Blocks:
    """What the rows need besides the state: [N, key_heads, value heads of each, B blocks, C rows, ..].

    sums [.., 1] is G, keys [.., key_dim], queries [.., key_dim] carry exp(G), solved [.., value_dim] and
    state_weights [.., key_dim] give U = solved - state_weights S^T, attention [.., C] gives a block's outputs from U.
    """

    sums: ir.Value
    keys: ir.Value
    queries: ir.Value
    solved: ir.Value
    state_weights: ir.Value
    attention: ir.Value


def gated_delta_net_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's shape; it remembers each layer's work for the node that commits its state."""
    done: dict[tuple[ir.Value | None, ...], _Layer] = {}

    def lower_gated_delta_net(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        operands, committed = tuple(node.inputs[:6]), node.inputs[6:]
        if operands not in done:
            done[operands] = _Layer(op, node, shape.rows)
        layer = done[operands]
        return [layer.output, layer.state_after(committed[0]) if committed else layer.end]

    return lower_gated_delta_net


class _Layer:
    """One layer's recurrence over the rows of a call: its output, and the state at its end."""

    def __init__(self, op: OpBuilder, node: ir.Node, rows: int) -> None:
        mixed, *gates, state = node.inputs
        _, self._heads, self._value_dim, self._key_dim = sizes(state)
        self._op = op
        self._key_heads = node.attributes["num_key_heads"].as_int()
        self._rows = rows
        self._block = max(size for size in range(1, min(BLOCK, rows) + 1) if rows % size == 0)
        self._blocks = self._prepare(mixed, *(cast(op, gate, FLOAT) for gate in gates))
        folded = [0, self._key_heads, self._heads // self._key_heads, 1, self._value_dim, self._key_dim]
        self._start = op.Reshape(state, folded)
        self._updates, self.output, self.end = self._run()

    @property
    def _count(self) -> int:
        return self._rows // self._block

    def state_after(self, committed: ir.Value | None) -> ir.Value:
        """Return the state [N, heads, value_dim, key_dim] after the rows that `committed` [N, T, 1] names, a prefix.

        Updates of those rows do not depend on the rows behind them, so they are the ones already there.
        """
        op = self._op
        kept = op.Reshape(op.Cast(committed, to=FLOAT), [0, 1, 1, self._count, self._block, 1])
        # Sums fall along the rows: the one at the last kept row is the least of the kept, and 0 when none is.
        ends = op.ReduceMin(op.Mul(self._blocks.sums, kept), [4], keepdims=1)
        weights = op.Mul(op.Exp(op.Min(op.Sub(ends, self._blocks.sums), 0.0)), kept)
        changes = self._changes(self._updates, op.Mul(self._blocks.keys, weights))
        state = self._start
        for change, decay in zip(self._by_block(changes), self._by_block(op.Exp(ends)), strict=True):
            state = op.Add(op.Mul(state, decay), change)
        return self._unfold(state)

    def _run(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return the updates U of all blocks, the outputs [N, T, heads, value_dim] and the state at the end."""
        op, blocks = self._op, self._blocks
        ends = op.Slice(blocks.sums, [-1], [2**31 - 1], [4])
        keys = op.Mul(blocks.keys, op.Exp(op.Sub(ends, blocks.sums))) if self._block > 1 else blocks.keys
        readers = self._by_block(op.Concat(blocks.state_weights, blocks.queries, axis=4))
        solved, keys_by_block, decays = (self._by_block(x) for x in (blocks.solved, keys, op.Exp(ends)))
        state = self._start
        updates, reads = [], []
        for reader, target, key, decay in zip(readers, solved, keys_by_block, decays, strict=True):
            both = op.MatMul(reader, op.Transpose(state, perm=[0, 1, 2, 3, 5, 4]))
            seen, read = op.Split(both, num_outputs=2, axis=4, _outputs=2)
            updates.append(op.Sub(target, seen))
            reads.append(read)
            state = op.Add(op.Mul(state, decay), self._changes(updates[-1], key))
        all_updates, all_reads = (op.Concat(*x, axis=3) if len(x) > 1 else x[0] for x in (updates, reads))
        multiply = op.MatMul if self._block > 1 else op.Mul
        output = op.Add(all_reads, multiply(blocks.attention, all_updates))
        by_head = op.Reshape(output, [0, self._heads, self._rows, self._value_dim])
        return all_updates, op.Transpose(by_head, perm=[0, 2, 1, 3]), self._unfold(state)

    def _prepare(
        self, mixed: ir.Value | None, decay: ir.Value, beta: ir.Value, scale: ir.Value, bias: ir.Value
    ) -> _Blocks:
        op, key_size = self._op, self._key_heads * self._key_dim
        parts = op.Split(mixed, [key_size, key_size, self._heads * self._value_dim], axis=-1, _outputs=3)
        queries, keys = (self._unit(self._in_blocks(part, self._key_heads, self._key_dim)) for part in parts[:2])
        queries = op.Mul(queries, self._key_dim**-0.5)
        values = self._in_blocks(parts[2], self._heads, self._value_dim)
        log_decay = op.Neg(op.Mul(op.Exp(scale), op.Softplus(op.Add(decay, bias))))
        log_decay, beta = (self._in_blocks(gate, self._heads, 1) for gate in (log_decay, op.Sigmoid(beta)))
        products = op.MatMul(op.Concat(keys, queries, axis=4), op.Transpose(keys, perm=[0, 1, 2, 3, 5, 4]))
        key_products, query_products = op.Split(products, num_outputs=2, axis=4, _outputs=2)
        if self._block == 1:
            decayed = op.Exp(log_decay)
            state_weights = op.Mul(keys, op.Mul(beta, decayed))
            solved = op.Mul(values, beta)
            return _Blocks(log_decay, keys, op.Mul(queries, decayed), solved, state_weights, query_products)
        lower = np.tril(np.ones((self._block, self._block), np.float32))
        across = op.Transpose(log_decay, perm=[0, 1, 2, 3, 5, 4])
        sums = op.ReduceSum(op.Mul(across, _constant(op, lower)), [-1], keepdims=1)
        differences = op.Sub(sums, op.Transpose(sums, perm=[0, 1, 2, 3, 5, 4]))
        # Above the diagonal the difference is positive and may overflow, so it is cut before the exponential.
        ratios = op.Mul(op.Exp(op.Min(differences, 0.0)), _constant(op, lower))
        system = op.Mul(op.Mul(op.Mul(key_products, ratios), beta), _constant(op, np.tril(lower, -1)))
        decayed = op.Exp(sums)
        right = op.Concat(op.Mul(values, beta), op.Mul(keys, op.Mul(beta, decayed)), axis=-1)
        both = op.MatMul(_inverse(op, system, self._block), right)
        solved, state_weights = op.Split(both, [self._value_dim, self._key_dim], axis=-1, _outputs=2)
        attention = op.Mul(query_products, ratios)
        return _Blocks(sums, keys, op.Mul(queries, decayed), solved, state_weights, attention)

    def _in_blocks(self, value: ir.Value, heads: int, width: int) -> ir.Value:
        """Return [N, key_heads, repeats, B, C, width] of [N, T, heads * width]."""
        repeats = heads // self._key_heads
        split = self._op.Reshape(value, [0, self._count, self._block, self._key_heads, repeats, width])
        return self._op.Transpose(split, perm=[0, 3, 4, 1, 2, 5])

    def _by_block(self, value: ir.Value) -> Sequence[ir.Value]:
        if self._count == 1:
            return [value]
        return self._op.Split(value, num_outputs=self._count, axis=3, _outputs=self._count)

    def _changes(self, updates: ir.Value, keys: ir.Value) -> ir.Value:
        """Return the sum over a block's rows of update times key [.., value_dim, key_dim]."""
        return self._op.MatMul(self._op.Transpose(updates, perm=[0, 1, 2, 3, 5, 4]), keys)

    def _unfold(self, state: ir.Value) -> ir.Value:
        return self._op.Reshape(state, [0, self._heads, self._value_dim, self._key_dim])

    def _unit(self, value: ir.Value) -> ir.Value:
        squared = self._op.ReduceSum(self._op.Mul(value, value), [-1], keepdims=1)
        return self._op.Div(value, self._op.Sqrt(self._op.Add(squared, NORM_EPSILON)))


def _inverse(op: OpBuilder, system: ir.Value, rows: int) -> ir.Value:
    """Return the inverse of (I + system), strictly lower triangular [.., C, C], by joining inverses of diagonal blocks.

    With X the inverse of the diagonal blocks of size b, that of size 2b is ``X - X M X``, where M is the part of the
    system below the diagonal within the larger blocks. Unlike powers of the system nothing grows beyond the inverse.
    """
    row, column = np.indices((rows, rows))
    below = (row // 2 == column // 2) & (row % 2 == 1) & (column % 2 == 0)
    inverse = op.Sub(_constant(op, np.eye(rows, dtype=np.float32)), op.Mul(system, _constant(op, below)))
    size = 2
    while size < rows:
        joined = row // (2 * size) == column // (2 * size)
        below = joined & (row // size % 2 == 1) & (column // size % 2 == 0)
        lower = op.Mul(system, _constant(op, below))
        inverse = op.Sub(inverse, op.MatMul(op.MatMul(inverse, lower), inverse))
        size *= 2
    return inverse


def _constant(op: OpBuilder, values: object) -> ir.Value:
    return op.Constant(value=ir.tensor(np.asarray(values, dtype=np.float32)))
