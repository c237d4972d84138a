"""Contender: dfc's runtime. Run as `ours.py ARTIFACT THREADS SPECULATION DRAFT_TOKENS`.

All that the benchmark knows of dfc's Python interface is here. A decoder is for one sequence, so each prompt has its
own, loaded outside the time that counts, as `dfc run` does it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from worker import Decode, Decoded, limit_threads, serve


def load(directory: str, speculation: str, draft_tokens: int) -> tuple[dict[str, str], Decode]:
    """Load the stages that `speculation` (none, mtp or dflash2) needs; `draft_tokens` is 0 for none."""
    from dfc.artifacts import open_artifact
    from dfc.runtime.engines import choose_backend
    from dfc.runtime.generate import Limits, generate
    from dfc.runtime.load import load_decoder
    from dfc.runtime.plan import RunContext, SpeculationRequest, resolve

    artifact = open_artifact(Path(directory))
    backend = choose_backend(artifact)
    plan = resolve(SpeculationRequest(speculation, draft_tokens or None), artifact.manifest, RunContext(backend))

    def decode(prompt_ids: Sequence[int], new_tokens: int) -> Decoded:
        limits = Limits(new_tokens, artifact.manifest.model.max_context, frozenset())
        generation = generate(load_decoder(artifact, plan, backend), prompt_ids, limits)
        statistics = generation.statistics
        return Decoded(
            list(generation.token_ids), statistics.prefill_seconds, statistics.decode_seconds, statistics.rounds
        )

    return {name: version(name) for name in ("dfc", "onnxruntime")}, decode


if __name__ == "__main__":
    limit_threads(int(sys.argv[2]))
    serve(lambda: load(sys.argv[1], sys.argv[3], int(sys.argv[4])))
