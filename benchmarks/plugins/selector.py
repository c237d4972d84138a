"""The selector beside an empty kernel and what serving engines do: a lattice of all edges, and a walk in Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.plugins.floor import empty
from benchmarks.plugins.timing import compare
from dfc.plugins.selector.launch import SelectorGeometry
from tests.plugins.checks import check_walk
from tests.plugins.driver import LoadedKernel

CANDIDATES, RANK, VOCABULARY = 16, 256, 248320
# Candidate rows of this many slots are several times the cache.
_SLOTS_OF_A_GRAPH = 3584
_DTYPES = ("int64", "float32", "float32", "bfloat16")

Tensors = dict[str, torch.Tensor]


def codebooks() -> list[torch.Tensor]:
    """Draw both codebooks once: they are the same for all shapes."""
    return [torch.randn(VOCABULARY, RANK, device="cuda").to(torch.bfloat16) for _ in range(2)]


def measure(batch: int, slots: int, books: list[torch.Tensor]) -> list[dict[str, Any]]:
    """Time a batch of walks with sampled rows (every other one greedy where there are several), and greedy ones."""
    count = max(8, _SLOTS_OF_A_GRAPH // (batch * slots))
    inputs = [_draw(batch, slots, books) for _ in range(count)]
    heats = torch.tensor([1.0, 0.0] * batch, device="cuda")[:batch]
    uniforms = [torch.rand(batch, slots, device="cuda") for _ in range(count)]
    contenders: dict[str, list[Callable[[], object]]] = {"empty kernel": [empty] * count}
    for sampled in (True, False):
        geometry = SelectorGeometry(CANDIDATES, RANK, slots, sampled, *_DTYPES)
        kernel, launch = LoadedKernel(geometry.kernel()), geometry.launch(batch, slots)
        starts = []
        for tensors, uniform in zip(inputs, uniforms, strict=True):
            tokens, q = _outputs(batch, slots)
            arguments = [*tensors.values(), *([heats, uniform] if sampled else [])]
            starts.append(kernel.bind(launch, arguments, [tokens, q] if sampled else [tokens]))
            if len(starts) == 1:
                starts[0]()
                check_walk(tensors, *((heats, uniform, tokens, q) if sampled else (None, None, tokens, None)))
        name = "dfc, sampled" if sampled else "dfc, greedy"
        contenders[name] = starts
        contenders[f"{name}, inputs in cache"] = starts[:1] * count
    lattices = {
        "einsum lattice + Triton walk": einsum_lattice,
        "einsum lattice, torch.compile + Triton walk": torch.compile(einsum_lattice, dynamic=False),
        "bf16 lattice, torch.compile + Triton walk": torch.compile(bf16_lattice, dynamic=False),
    }
    for name, lattice in lattices.items():
        contenders[name] = [
            lambda lattice=lattice, tensors=tensors, uniform=uniform: walk(lattice(**tensors), tensors, heats, uniform)
            for tensors, uniform in zip(inputs, uniforms, strict=True)
        ]
    tokens, q = walk(einsum_lattice(**inputs[0]), inputs[0], heats, uniforms[0])
    check_walk(inputs[0], heats, uniforms[0], tokens, q)
    return [
        {
            "operator": "selector",
            "shape": f"N={batch}, S={slots}, K={CANDIDATES}, R={RANK}, V={VOCABULARY}",
            "contender": name,
            "microseconds": timing.median,
            "low": timing.low,
            "high": timing.high,
        }
        for name, timing in compare(contenders).items()
    ]


def _previous(candidate_ids: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
    batch, _, count = candidate_ids.shape
    return torch.cat([anchor[:, None, None].expand(batch, 1, count), candidate_ids[:, :-1]], 1)


def einsum_lattice(
    candidate_ids: torch.Tensor,
    candidate_logits: torch.Tensor,
    projected: torch.Tensor,
    predecessor_codebook: torch.Tensor,
    successor_codebook: torch.Tensor,
    anchor: torch.Tensor,
) -> torch.Tensor:
    """Scores [N, S, K, K] of every candidate after every candidate of the slot before, in float32."""
    rows = predecessor_codebook[_previous(candidate_ids, anchor)].float()
    edges = torch.einsum("nskr,nsr,nsjr->nskj", rows, projected, successor_codebook[candidate_ids].float())
    return edges + candidate_logits[:, :, None]


def bf16_lattice(
    candidate_ids: torch.Tensor,
    candidate_logits: torch.Tensor,
    projected: torch.Tensor,
    predecessor_codebook: torch.Tensor,
    successor_codebook: torch.Tensor,
    anchor: torch.Tensor,
) -> torch.Tensor:
    """The same with products rounded to bf16, which is faster and is not what the sampled q is held to."""
    rows = predecessor_codebook[_previous(candidate_ids, anchor)] * projected.to(torch.bfloat16)[:, :, None]
    edges = rows @ successor_codebook[candidate_ids].transpose(-1, -2)
    return edges.float() + candidate_logits[:, :, None]


@triton.jit
def _walk(lattice, ids, temperature, uniforms, tokens, q, S, K: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    k = tl.arange(0, K)
    heat = tl.load(temperature + row)
    before = 0
    for slot in range(S):
        at = row * S + slot
        scores = tl.load(lattice + (at * K + before) * K + k)
        best = tl.argmax(scores, 0).to(tl.int32)
        weights = tl.exp((scores - tl.max(scores, 0)) / tl.where(heat > 0, heat, 1.0))
        probabilities = weights / tl.sum(weights, 0)
        passed = tl.load(uniforms + at) >= tl.cumsum(probabilities, 0)
        drawn = tl.minimum(tl.sum(passed.to(tl.int32), 0), K - 1)
        choice = tl.where(heat > 0, drawn, best)
        tl.store(q + at * K + k, tl.where(heat > 0, probabilities, (k == best).to(tl.float32)))
        tl.store(tokens + at, tl.load(ids + at * K + choice))
        before = choice


def walk(
    lattice: torch.Tensor, tensors: Tensors, heats: torch.Tensor, uniforms: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Walk over a lattice, one program a row."""
    batch, slots = uniforms.shape
    tokens, q = _outputs(batch, slots)
    _walk[(batch,)](lattice, tensors["candidate_ids"], heats, uniforms, tokens, q, slots, CANDIDATES, num_warps=1)
    return tokens, q


def _outputs(batch: int, slots: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.empty(batch, slots, dtype=torch.int64, device="cuda")
    return tokens, torch.empty(batch, slots, CANDIDATES, device="cuda")


def _draw(batch: int, slots: int, books: list[torch.Tensor]) -> Tensors:
    return {
        "candidate_ids": torch.randint(0, VOCABULARY, (batch, slots, CANDIDATES), device="cuda"),
        "candidate_logits": torch.randn(batch, slots, CANDIDATES, device="cuda"),
        "projected": torch.randn(batch, slots, RANK, device="cuda") / RANK**0.5,
        "predecessor_codebook": books[0],
        "successor_codebook": books[1],
        "anchor": torch.randint(0, VOCABULARY, (batch,), device="cuda"),
    }
