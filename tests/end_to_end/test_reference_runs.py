"""The reference model against its golden runs: tokens and every round."""

from __future__ import annotations

from typing import Any

import pytest

from dfc.artifacts import Artifact
from tests.end_to_end.decoding import decode

NEW_TOKENS = 96


@pytest.mark.parametrize(
    "speculation, draft_tokens, golden_rounds",
    [("none", None, None), ("mtp", 3, "mtp3_rounds"), ("dflash2", None, "dflash2_rounds")],
)
def test_tokens_and_rounds_equal_the_golden_ones(
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    speculation: str,
    draft_tokens: int | None,
    golden_rounds: str | None,
) -> None:
    assert len(reference_runs) == 16
    for case in reference_runs:
        decoded = decode(reference_artifact, case["prompt_ids"], NEW_TOKENS, speculation, draft_tokens)
        assert decoded.token_ids == case["greedy_ids"], case["prompt"]
        if golden_rounds is not None:
            assert decoded.rounds == case[golden_rounds], case["prompt"]


@pytest.mark.parametrize("speculation", ["none", "mtp", "dflash2"])
@pytest.mark.parametrize("prefill_rows", [1, 3, 8])
def test_the_chunk_size_of_the_prompt_does_not_matter(
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    speculation: str,
    prefill_rows: int,
) -> None:
    # 8 is also the size of a verified block: a prompt chunk must not be taken for one.
    case = max(reference_runs, key=lambda case: len(case["prompt_ids"]))
    assert len(case["prompt_ids"]) > 8
    whole = decode(reference_artifact, case["prompt_ids"], 32, speculation)
    chunked = decode(reference_artifact, case["prompt_ids"], 32, speculation, prefill_rows=prefill_rows)
    assert chunked == whole


@pytest.mark.parametrize("draft_tokens", range(1, 8))
@pytest.mark.parametrize("speculation", ["mtp", "dflash2"])
def test_any_number_of_drafts_gives_the_same_tokens(
    reference_artifact: Artifact,
    reference_runs: list[dict[str, Any]],
    speculation: str,
    draft_tokens: int,
) -> None:
    case = reference_runs[draft_tokens]
    decoded = decode(reference_artifact, case["prompt_ids"], 48, speculation, draft_tokens)
    assert decoded.token_ids == case["greedy_ids"][:48]
    assert all(len(entry["proposed"]) == draft_tokens for entry in decoded.rounds)  # type: ignore[arg-type]
