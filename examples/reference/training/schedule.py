"""How long to train and at which learning rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

WARM_UP_STEPS = 100
FIRST_TIMED_STEP, LAST_TIMED_STEP = 10, 30
ASSUMED_STEPS = 3000


@dataclass(frozen=True)
class Budget:
    """Training time: a number of steps, or seconds of which the steps are worked out once the pace is known."""

    seconds: float
    steps: int | None = None


def steps(budget: Budget, optimizer: torch.optim.Optimizer, peak: float) -> Iterator[int]:
    """Step numbers until the budget is spent, setting the learning rate of each: warm-up, then cosine to 5%."""
    start = time.monotonic()
    total, step, first_timed = budget.steps, 0, 0.0
    while total is None or step < total:
        elapsed = time.monotonic() - start
        if budget.steps is None and elapsed > budget.seconds:
            return
        if step == FIRST_TIMED_STEP:
            first_timed = elapsed
        if step == LAST_TIMED_STEP and total is None:
            pace = (elapsed - first_timed) / (LAST_TIMED_STEP - FIRST_TIMED_STEP)
            total = int(budget.seconds / pace)
            print(f"{pace:.3f} s a step, {total} steps", flush=True)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, total or ASSUMED_STEPS, peak)
        yield step
        step += 1


def learning_rate(step: int, total: int, peak: float) -> float:
    """Linear warm-up over 100 steps, times a cosine from 1 to 0.05."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / total))
    return peak * min(1.0, (step + 1) / WARM_UP_STEPS) * (0.05 + 0.95 * cosine)
