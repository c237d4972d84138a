"""Building and decoding in this process, for tests that look inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.quantising import Quantisation
from dfc.runtime.decode import PREFILL_ROWS, Decoder, Round
from dfc.runtime.generate import Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.sampling import Sampling


@dataclass(frozen=True)
class Decoded:
    """New tokens, and the rounds that made them, as in `tests/golden/reference_runs.json`."""

    token_ids: list[int]
    rounds: list[dict[str, object]]


def build(
    output: Path,
    target: Path,
    *drafts: Path,
    draft_tokens: int | None = None,
    quantisation: Quantisation | None = None,
) -> Artifact:
    """Build an artifact and open it."""
    build_artifact(BuildRequest(target, drafts, output, draft_tokens=draft_tokens, quantisation=quantisation))
    return open_artifact(output)


def open_decoder(
    artifact: Artifact,
    speculation: str,
    draft_tokens: int | None = None,
    prefill_rows: int = PREFILL_ROWS,
    backend: str = "onnxruntime",
    sampling: Sampling | None = None,
) -> Decoder:
    """Load what decodes one sequence."""
    plan = resolve(SpeculationRequest(speculation, draft_tokens), artifact.manifest, RunContext(backend))
    return load_decoder(artifact, plan, backend, prefill_rows, sampling)


def new_tokens(decoder: Decoder, prompt: Sequence[int], count: int) -> list[int]:
    """Decode `count` tokens with a decoder that may have decoded before."""
    return list(generate(decoder, prompt, Limits(count, 2048, frozenset())).token_ids)


def decode(
    artifact: Artifact,
    prompt: Sequence[int],
    count: int,
    speculation: str,
    draft_tokens: int | None = None,
    prefill_rows: int = PREFILL_ROWS,
    backend: str = "onnxruntime",
    sampling: Sampling | None = None,
) -> Decoded:
    """Decode `count` tokens, end-of-sequence tokens ignored."""
    decoder = open_decoder(artifact, speculation, draft_tokens, prefill_rows, backend, sampling)
    return decode_with(decoder, prompt, count, artifact.manifest.model.max_context)


def decode_with(decoder: Decoder, prompt: Sequence[int], count: int, max_context: int = 2048) -> Decoded:
    """Decode `count` tokens with a decoder that may have decoded before, end-of-sequence tokens ignored."""
    rounds: list[dict[str, object]] = []

    def record(finished: Round) -> None:
        rounds.append({"anchor": finished.anchor, "proposed": list(finished.proposed), "accepted": finished.accepted})

    limits = Limits(max_new=count, max_context=max_context, stop_token_ids=frozenset())
    generation = generate(decoder, prompt, limits, on_round=record)
    return Decoded(list(generation.token_ids), rounds)
