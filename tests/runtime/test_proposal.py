"""Proposals that were not drawn."""

from __future__ import annotations

import pytest

from dfc.runtime.proposal import certain


@pytest.mark.parametrize("token", [0, 1, 4, 5, 900])
def test_a_certain_draft_is_one_of_different_candidates(token: int) -> None:
    candidates, probabilities = certain([token, 2], slots=3, width=5)
    assert candidates.shape == probabilities.shape == (1, 3, 5)
    assert all(len(set(row)) == 5 for row in candidates[0].tolist())
    assert candidates[0, :2, 0].tolist() == [token, 2]
    assert probabilities[0].tolist() == [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
