"""`Experts` in standard operators, with the weights as the checkpoint stores them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.passes.lowering import Rule
from dfc.compiler.passes.tensorrt.linear import stored_weight
from dfc.compiler.passes.tensorrt.precision import BFLOAT16, FLOAT, cast, product
from dfc.compiler.passes.tensorrt.shapes import EngineShape, sizes


def experts_rule(shape: EngineShape) -> Rule:
    """Return the rule for an engine's rows.

    Few rows read the weights of the experts that they chose. Where rows choose as often as there are experts or more,
    every expert computes all rows, and those that did not choose it weigh nothing: each weight is read once.
    """

    def rule(op: OpBuilder, node: ir.Node) -> Sequence[ir.Value]:
        x, router_logits, gate_up, down = node.inputs
        gate_up, down = stored_weight(gate_up), stored_weight(down)
        chosen = node.attributes["experts_per_token"].as_int()
        experts, _, hidden = sizes(gate_up)
        rows = op.Reshape(cast(op, x, FLOAT), [-1, hidden])
        logits = op.Reshape(router_logits, [-1, experts])
        largest, ids = op.TopK(logits, [chosen], axis=-1, _outputs=2)
        largest.dtype = FLOAT
        shares = op.Softmax(largest, axis=-1)
        if shape.rows * shape.dimensions.get("N", 1) * chosen < experts:
            output = _chosen_experts(op, rows, ids, shares, gate_up, down)
        else:
            output = _all_experts(op, rows, _spread(op, logits, ids, shares), gate_up, down)
        return [op.Reshape(output, op.Shape(x))]

    return rule


def _chosen_experts(
    op: OpBuilder, rows: ir.Value, ids: ir.Value, shares: ir.Value, gate_up: ir.Value, down: ir.Value
) -> ir.Value:
    """Return [R, H] from copies of the chosen weights; rows [R, H], ids and shares [R, K]."""
    _, twice, hidden = sizes(gate_up)
    # [R, K, 2 I, H] @ [R, 1, H, 1]
    inner = _gated(op, op.MatMul(_taken(op, gate_up, ids), _column(op, rows)), axis=-2, width=twice // 2)
    weighted = op.Mul(inner, op.Unsqueeze(shares, [2, 3]))
    outer = product(op, _taken(op, down, ids), weighted)
    return op.Reshape(op.ReduceSum(outer, [1], keepdims=0), [-1, hidden])


def _all_experts(op: OpBuilder, rows: ir.Value, shares: ir.Value, gate_up: ir.Value, down: ir.Value) -> ir.Value:
    """Return [R, H] with every expert on every row; shares [R, E]."""
    _, twice, _ = sizes(gate_up)
    columns = op.Unsqueeze(op.Transpose(cast(op, rows, BFLOAT16), perm=[1, 0]), [0])
    # [E, 2 I, H] @ [1, H, R]
    inner = _gated(op, op.MatMul(cast(op, gate_up, BFLOAT16), columns), axis=-2, width=twice // 2)
    weighted = op.Mul(inner, op.Unsqueeze(op.Transpose(shares, perm=[1, 0]), [1]))
    outer = product(op, down, weighted)
    return op.Transpose(op.ReduceSum(outer, [0], keepdims=0), perm=[1, 0])


def _spread(op: OpBuilder, logits: ir.Value, ids: ir.Value, shares: ir.Value) -> ir.Value:
    """Return the shares [R, K] at their experts' places in [R, E], zeros elsewhere."""
    nothing = op.Mul(logits, 0.0)
    return op.ScatterElements(nothing, ids, shares, axis=1)


def _taken(op: OpBuilder, weight: ir.Value, ids: ir.Value) -> ir.Value:
    taken = op.Gather(weight, ids, axis=0)
    taken.dtype = weight.dtype
    return cast(op, taken, BFLOAT16)


def _column(op: OpBuilder, rows: ir.Value) -> ir.Value:
    return op.Unsqueeze(cast(op, rows, BFLOAT16), [1, 3])


def _gated(op: OpBuilder, both: ir.Value, *, axis: int, width: int) -> ir.Value:
    """Return ``silu(gate) * up`` in float32 of both halves along an axis."""
    both.dtype = BFLOAT16
    gate, up = op.Split(cast(op, both, FLOAT), [width, width], axis=axis, _outputs=2)
    return op.Mul(op.Mul(gate, op.Sigmoid(gate)), up)
