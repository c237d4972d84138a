"""What the outputs of the kernels are held against: float64 arithmetic, and for the walk the path that was taken."""

from __future__ import annotations

import torch

from dfc.plugins.grouped_conv.reference import grouped_conv


def check_convolution(
    actual: torch.Tensor,
    hidden: torch.Tensor,
    coefficients: torch.Tensor,
    base: torch.Tensor,
    residual: torch.Tensor | None,
    side: int,
    taps: int,
    group_size: int,
) -> None:
    """Assert that the output is the float64 result, rounded once if it is bfloat16 (all tensors on one device)."""
    tensors = [None if tensor is None else tensor.double() for tensor in (hidden, coefficients, base, residual)]
    exact = grouped_conv(*tensors, side, taps, group_size)
    # The sum of the absolute terms bounds what float32 arithmetic may lose.
    terms = grouped_conv(*(None if tensor is None else tensor.abs() for tensor in tensors), side, taps, group_size)
    allowed = 1e-6 * terms
    if actual.dtype == torch.bfloat16:
        # Half the distance between neighbours; the smallest exponent keeps zero away from the logarithm.
        allowed = allowed + exact.abs().clamp(min=2.0**-100).log2().floor().exp2() * 2.0**-8
    off = (actual.double() - exact).abs()
    assert bool((off <= allowed).all()), f"off by {float(off.max())}"


def check_walk(
    inputs: dict[str, torch.Tensor],
    temperature: torch.Tensor | None,
    uniforms: torch.Tensor | None,
    tokens: torch.Tensor,
    q: torch.Tensor | None,
) -> None:
    """Assert that each token is a right choice after the token before it, by float64 scores.

    A walk that is compared as a whole with another one fails at near ties, whichever is right; this one does not.
    """
    tokens, ids = tokens.long(), inputs["candidate_ids"].long()
    predecessors, successors = (inputs[f"{side}_codebook"].double() for side in ("predecessor", "successor"))
    before = inputs["anchor"].long()
    count = ids.shape[-1]
    for slot in range(ids.shape[1]):
        weights = predecessors[before] * inputs["projected"][:, slot].double()
        scores = torch.einsum("nr,nkr->nk", weights, successors[ids[:, slot]])
        scores += inputs["candidate_logits"][:, slot].double()
        chosen = ids[:, slot] == tokens[:, slot, None]
        assert bool((chosen.sum(-1) == 1).all()), "a token is none of the candidates"
        index = chosen.int().argmax(-1)
        score = scores.gather(1, index[:, None])[:, 0]
        greedy = torch.ones_like(score, dtype=torch.bool) if temperature is None else temperature <= 0
        tolerance = 1e-5 * (1 + scores.abs().amax(-1))
        assert bool((score >= scores.amax(-1) - tolerance)[greedy].all()), "a greedy row did not take the highest score"
        if q is not None and temperature is not None and uniforms is not None:
            heat = torch.where(greedy, 1.0, temperature).double()
            probabilities = torch.softmax(scores / heat[:, None], -1)
            one_hot = torch.nn.functional.one_hot(index, count).double()
            expected = torch.where(greedy[:, None], one_hot, probabilities)
            torch.testing.assert_close(q[:, slot].double(), expected, rtol=1e-5, atol=1e-5)
            assert bool((q[:, slot].gather(1, index[:, None]) > 0).all()), "a token has no probability in q"
            end = probabilities.cumsum(-1).gather(1, index[:, None])[:, 0]
            start = end - probabilities.gather(1, index[:, None])[:, 0]
            drawn = (uniforms[:, slot] >= start - 1e-5) & (uniforms[:, slot] < end + 1e-5)
            assert bool((drawn | greedy).all()), "a sampled row did not invert the distribution"
        before = tokens[:, slot]
