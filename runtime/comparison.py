"""Is an artifact's behaviour that of its source: logits, perplexity, greedy tokens, and states behind speculation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dfc.artifacts import Artifact, Stage, Tensor
from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.tensors import MAX_ONNX_BYTES, check_model
from dfc.runtime.decode import PREFILL_ROWS, PlainDecoder, SpeculativeDecoder
from dfc.runtime.engine import Array, Buffer, Call, Copy, Engine
from dfc.runtime.engines import onnxruntime
from dfc.runtime.errors import RunError
from dfc.runtime.plan import SpeculationPlan
from dfc.runtime.states import States
from dfc.runtime.target import AdvancingTarget, VerifyingTarget

Logits = Callable[[Sequence[int]], Array]
"""Logits [T, V] float32 of T tokens."""

STATE_TOLERANCE = 1e-4
"""Most difference of a state's elements, relative to its largest: a block's rows are added in another order."""


@dataclass(frozen=True)
class Check:
    """One line of the comparison: `passed` is None for what is measured and not judged."""

    name: str
    value: str
    limit: str
    passed: bool | None


class _WithLogits:
    """An engine whose calls also write their logits."""

    def __init__(self, engine: Engine, logits: Buffer) -> None:
        self._engine = engine
        self._logits = logits

    @property
    def stage(self) -> Stage:
        return self._engine.stage

    @property
    def prepared_rows(self) -> tuple[int, ...]:
        return self._engine.prepared_rows

    def fit(self, **sizes: int) -> dict[str, int]:
        return self._engine.fit(**sizes)

    def allocate(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self._engine.allocate(dtype, shape)

    def share(self, dtype: str, shape: tuple[int, ...]) -> Buffer:
        return self._engine.share(dtype, shape)

    def bind(self, buffers: Mapping[str, Buffer], copies: Sequence[Copy] = ()) -> Call:
        return self._engine.bind({**buffers, "logits": self._logits}, copies)


def artifact_logits(artifact: Artifact, with_logits: Callable[[bytes], bytes]) -> Logits:
    """Return what gives an artifact's logits, one token a call as plain decoding makes them.

    `with_logits` adds the output `logits` to an ONNX model.

    Raises:
        RunError: the artifact has no engine for onnxruntime, or it cannot be loaded.
    """
    stage = artifact.manifest.stages["target_advance"]
    engines = stage.engines.get(onnxruntime.BACKEND, ())
    if not engines:
        raise RunError(f"{artifact.root} has no onnxruntime engines, and only their logits can be compared")
    model = read_bounded(artifact.path(engines[0].path), MAX_ONNX_BYTES)
    check_model(model, f"{artifact.root}: engine {engines[0].path}", artifact.manifest)
    session = onnxruntime.library().InferenceSession(
        with_logits(model), onnxruntime.session_options(artifact), providers=["CPUExecutionProvider"]
    )
    width = next(output.shape[-1] for output in session.get_outputs() if output.name == "logits")
    if not isinstance(width, int):
        width = artifact.manifest.model.vocab_size
    output = Tensor(name="logits", dtype="float32", shape=("N", width), role="output")
    extended = stage.model_copy(update={"outputs": (*stage.outputs, output)})
    engine = onnxruntime.OnnxruntimeEngine(extended, session)
    buffer = engine.allocate("float32", (1, width))
    target = AdvancingTarget(_WithLogits(engine, buffer))

    def logits(token_ids: Sequence[int]) -> Array:
        target.states.reset()
        target.length = 0
        rows = []
        for token in token_ids:
            target.advance([token])
            rows.append(buffer.read()[0].copy())
        return np.stack(rows)

    return logits


def compare_logits(
    ours: Logits, reference: Logits, texts: Sequence[Sequence[int]], tolerance: float | None
) -> tuple[Check, ...]:
    """Compare logits on texts of at least two tokens each; `tolerance` is relative to the largest logit, None judges
    nothing."""
    difference = scale = 0.0
    agreeing = predicted = 0
    losses = np.zeros(2)
    for text in texts:
        mine, theirs = ours(text), reference(text)
        width = min(mine.shape[1], theirs.shape[1])
        mine, theirs = mine[:, :width], theirs[:, :width]
        difference = max(difference, float(np.abs(mine - theirs).max()))
        scale = max(scale, float(np.abs(theirs).max()))
        agreeing += int((mine.argmax(1) == theirs.argmax(1)).sum())
        predicted += len(text) - 1
        losses += [_loss(rows[:-1], text[1:]) for rows in (mine, theirs)]
    rows = sum(map(len, texts))
    perplexity, source = np.exp(losses / predicted)
    # A NaN fails: it is not below anything.
    relative = difference / scale if scale else float("nan")
    return (
        Check(
            "logits: largest difference over largest logit",
            f"{relative:.2e}",
            "" if tolerance is None else f"{tolerance:.0e}",
            None if tolerance is None else relative <= tolerance,
        ),
        Check("top-1 agreement", f"{agreeing / rows:.2%} of {rows}", "", None),
        Check("perplexity (source)", f"{perplexity:.4f} ({source:.4f})", "", None),
    )


def greedy_tokens(artifact: Artifact, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Return the artifact's own answers of `count` tokens without a drafter."""
    decoder = PlainDecoder(AdvancingTarget(onnxruntime.load_engine(artifact, "target_advance")))
    answers = []
    for prompt in prompts:
        tokens = [decoder.start(prompt)]
        while len(tokens) < count:
            tokens.extend(decoder.step().tokens)
        answers.append(tokens)
    return answers


def compare_greedy(
    reference: Logits, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]], tolerance: float | None
) -> Check:
    """Compare answers with the reference's choices after the same tokens; a tie within `tolerance` counts as equal,
    and None judges nothing."""
    differing = compared = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        logits = reference([*prompt, *answer[:-1]])[len(prompt) - 1 :]
        chosen = logits[np.arange(len(answer)), list(answer)]
        margin = (tolerance or 0.0) * np.abs(logits).max()
        differing += int((~(chosen >= logits.max(1) - margin)).sum())
        compared += len(answer)
    value = f"{compared - differing} of {compared} equal"
    if tolerance is None:
        return Check("greedy tokens", value, "", None)
    return Check("greedy tokens", value, "all", differing == 0)


def compare_drafter(
    artifact: Artifact, plan: SpeculationPlan, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> tuple[Check, ...]:
    """Decode speculatively: the tokens and the target's states must be those of plain decoding."""
    assert plan.drafter is not None
    advance = onnxruntime.load_engine(artifact, "target_advance")
    verify = onnxruntime.load_engine(artifact, "target_verify")
    draft = onnxruntime.load_engine(artifact, plan.draft_stage)
    equal = drafted = accepted = rounds = 0
    worst = 0.0
    for prompt, answer in zip(prompts, answers, strict=True):
        target = VerifyingTarget(verify)
        decoder = SpeculativeDecoder(target, plan.drafter.open(draft, plan.draft_tokens), PREFILL_ROWS)
        tokens = [decoder.start(prompt)]
        while len(tokens) < len(answer):
            finished = decoder.step()
            tokens.extend(finished.tokens)
            drafted += len(finished.proposed)
            accepted += finished.accepted
            rounds += 1
        equal += tokens[: len(answer)] == list(answer)
        plain = AdvancingTarget(advance)
        committed = [*prompt, *tokens][: target.length]
        plain.advance(committed[: len(prompt)], prompt=True)
        for token in committed[len(prompt) :]:
            plain.advance([token])
        worst = np.fmax(worst, _state_difference(target.states, plain.states, target.length))
    name = plan.speculation
    return (
        Check(
            f"{name}: tokens as without it", f"{equal} of {len(prompts)} answers equal", "all", equal == len(prompts)
        ),
        Check(
            f"{name}: states as without it, relative",
            f"{worst:.2e}",
            f"{STATE_TOLERANCE:.0e}",
            bool(worst <= STATE_TOLERANCE),
        ),
        Check(
            f"{name}: accepted of drafted",
            f"{accepted / max(drafted, 1):.1%}, {1 + accepted / max(rounds, 1):.2f} tokens a round",
            "",
            None,
        ),
    )


def _state_difference(actual: States, expected: States, length: int) -> float:
    """Return the largest difference over the largest element of a tensor; infinite where something is not finite."""
    worst = 0.0
    theirs = expected.snapshot()
    for name, buffer in actual.snapshot().items():
        mine, other = buffer.read()[0], theirs[name].read()[0]
        if name.endswith("_cache"):
            mine, other = mine[:, :length], other[:, :length]
        mine, other = mine.astype(np.float64), other.astype(np.float64)
        difference = float(np.abs(mine - other).max(initial=0.0) / max(1.0, np.abs(other).max(initial=0.0)))
        worst = max(worst, difference if np.isfinite(difference) else float("inf"))
    return worst


def _loss(logits: Array, following: Sequence[int]) -> float:
    """Return the summed negative log-likelihood of the tokens that follow each row."""
    rows = logits.astype(np.float64)
    highest = rows.max(1)
    normalizer = highest + np.log(np.exp(rows - highest[:, None]).sum(1))
    return float((normalizer - rows[np.arange(len(rows)), list(following)]).sum())
