"""What `dfc run --json` says of one answer."""

from __future__ import annotations

from dataclasses import asdict

from dfc.runtime.generate import Generation
from dfc.runtime.plan import Plan
from dfc.runtime.sampling import Sampling
from dfc.runtime.stops import AnswerText


def report(
    generation: Generation, plan: Plan, sampling: Sampling | None, answer: AnswerText | None
) -> dict[str, object]:
    """Return the object to print."""
    return {
        "text": None if answer is None else answer.text,
        "token_ids": generation.token_ids,
        "finish_reason": generation.finish_reason,
        "stop_reason": generation.stop_reason,
        "speculation": plan.describe(),
        "sampling": None if sampling is None else asdict(sampling),
        "stats": asdict(generation.statistics),
    }
