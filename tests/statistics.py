"""Tests of counts against exact probabilities."""

from __future__ import annotations

import numpy as np
import torch

from dfc.runtime.engine import Array

FEWEST_EXPECTED = 5.0


def chi_square_p(counts: Array, probabilities: Array) -> float:
    """Return the probability that draws from `probabilities` differ from them as much as `counts` do.

    Outcomes expected less than five times count together; one that cannot happen but did gives 0.
    """
    if counts[probabilities <= 0].any():
        return 0.0
    expected = probabilities / probabilities.sum() * counts.sum()
    common = expected >= FEWEST_EXPECTED
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    if len(wanted) < 2:
        return 1.0
    freedom = torch.tensor((len(wanted) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))
