"""The target stages, for every model family: `target_advance` and `target_verify`, for each way to choose tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnxscript import OpBuilder

from dfc.compiler.checkpoint.spec import TargetSpec
from dfc.compiler.export import ops
from dfc.compiler.export.stage import StageBuilder, StageGraph
from dfc.compiler.export.weights import Weights
from dfc.compiler.models import qwen3_5
from dfc.compiler.models.choice import Choice, GreedyChoice
from dfc.compiler.models.layers import FLOAT, INT64, indices, take_rows
from dfc.compiler.models.trunk import Committed, Rows, Trunk
from dfc.compiler.models.verification import find_drafts

WEIGHTS_FOLDER = "target"

FAMILIES = {"qwen3_5": qwen3_5.run_trunk}


@dataclass(frozen=True)
class TargetOptions:
    """Cache rows per sequence, most rows of a round, and what the artifact's drafters read from a verified block.

    ``candidates`` is how many tokens a sampled draft was drawn from. ``padded``: calls may carry rows behind a prompt's
    last ones, because the backend's engines have static shapes.
    """

    capacity: int
    round_rows: int = 1
    padded: bool = False
    hidden_output: bool = False
    feature_layers: tuple[int, ...] = ()
    candidates: int = 0


def advance_stage(spec: TargetSpec, options: TargetOptions, choice: Choice = GreedyChoice) -> StageGraph:
    """Build `target_advance`: all T rows of every sequence are committed, `anchor` [N] is the choice after the last.

    Plain decoding needs no more: no acceptance, and no second look at the states. A padded stage has one more input,
    `valid` [N], the rows that are committed.
    """
    stage = StageBuilder(f"target_advance{choice.suffix}", "target")
    op = stage.op
    chooser = choice(stage, spec)
    weights = Weights(stage, spec.tensors, WEIGHTS_FOLDER, spec.quantised)
    input_ids = stage.input("input_ids", INT64, ("N", "T"))
    lengths = stage.input("lengths", INT64, ("N",))
    if options.padded:
        valid = stage.input("valid", INT64, ("N",))
    else:
        valid = op.Expand(op.Shape(input_ids, start=1, end=2), op.Shape(lengths))
    rows = Rows(input_ids, lengths, valid, options.capacity)
    trunk = FAMILIES[spec.family](stage, weights, spec, rows)
    if options.padded:
        last = op.Squeeze(take_rows(op, trunk.hidden, op.Unsqueeze(op.Sub(valid, 1), [1])), [1])
        committed = _first_rows(op, input_ids, valid)
        after = [state.after(committed) for state in trunk.states]
    else:
        last = op.Gather(trunk.hidden, -1, axis=1)
        after = [state.after_all for state in trunk.states]
    logits = ops.linear(op, last, weights.float32(spec.head))
    stage.output("anchor", chooser.after_last(logits, input_ids, valid), INT64, ("N",))
    _state_outputs(stage, trunk, after)
    return stage.finish()


def verify_stage(spec: TargetSpec, options: TargetOptions, choice: Choice = GreedyChoice) -> StageGraph:
    """Build `target_verify`: of the valid rows the first `forced` are committed, the rest are drafts judged here.

    Inputs besides tokens and states: `lengths` [N] committed so far, `forced` [N] >= 1, `valid` [N] >= forced, and
    `judged` [J] = 0 .. J - 1: the target is asked for its choice after each of the rows forced - 1 + j, so J is the
    largest valid - forced, plus 1. Outputs: `accepted` [N], `anchor` [N] the choice after the last accepted row, what
    the drafters read, and the states after the committed rows.
    """
    stage = StageBuilder(f"target_verify{choice.suffix}", "target")
    op = stage.op
    chooser = choice(stage, spec, options.candidates)
    weights = Weights(stage, spec.tensors, WEIGHTS_FOLDER, spec.quantised)
    input_ids = stage.input("input_ids", INT64, ("N", "T"))
    lengths, forced, valid = (stage.input(name, INT64, ("N",)) for name in ("lengths", "forced", "valid"))
    judged = stage.input("judged", INT64, ("J",))
    trunk = FAMILIES[spec.family](stage, weights, spec, Rows(input_ids, lengths, valid, options.capacity))

    last_valid = op.Unsqueeze(op.Sub(valid, 1), [1])
    asked = op.Min(op.Add(op.Unsqueeze(op.Sub(forced, 1), [1]), judged), last_valid)
    logits = ops.linear(op, take_rows(op, trunk.hidden, asked), weights.float32(spec.head))
    verdict = chooser.judge(logits, find_drafts(op, input_ids, asked, valid), input_ids, forced)

    stage.output("accepted", verdict.accepted, INT64, ("N",))
    stage.output("anchor", verdict.anchor, INT64, ("N",))
    if options.hidden_output:
        stage.output("hidden", trunk.hidden, FLOAT, ("N", "T", spec.hidden_size))
    if options.feature_layers:
        features = op.Concat(*(trunk.layer_outputs[layer] for layer in options.feature_layers), axis=-1)
        stage.output("features", features, FLOAT, ("N", "T", len(options.feature_layers) * spec.hidden_size))
    committed = _first_rows(op, input_ids, verdict.committed)
    _state_outputs(stage, trunk, [state.after(committed) for state in trunk.states])
    return stage.finish(options.round_rows)


def _first_rows(op: OpBuilder, input_ids: ir.Value, counts: ir.Value) -> Committed:
    """Return the first `counts` [N] rows of input_ids [N, T] as the committed ones."""
    before_end = op.Less(indices(op, input_ids, 1), op.Unsqueeze(counts, [1]))
    return Committed(counts, op.Unsqueeze(before_end, [2]))


def _state_outputs(stage: StageBuilder, trunk: Trunk, after: Sequence[ir.Value]) -> None:
    for state, value in zip(trunk.states, after, strict=True):
        stage.output(f"next.{state.name}", value, FLOAT, state.shape, state.role, alias=state.name)
