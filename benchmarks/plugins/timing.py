"""Medians of launches inside replayed CUDA graphs, contenders in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

# Inputs of all launches of a graph together: several times the L2 cache of an H200.
COLD_BYTES = 250_000_000
_MOST_LAUNCHES = 768
_ROUNDS = 25

Start = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Microseconds of one launch: median and extremes over the replays."""

    median: float
    low: float
    high: float


def launches_for(input_bytes: int) -> int:
    """Return how many launches, each on inputs of its own, find none of them in the cache."""
    return max(2, min(_MOST_LAUNCHES, math.ceil(COLD_BYTES / input_bytes)))


def compare(contenders: Mapping[str, Sequence[Start]]) -> dict[str, Timing]:
    """Time every contender's launches, one after the other in a graph.

    The contenders take turns, so that clocks which move in the meantime move for all of them.
    """
    graphs = {name: _capture(launches) for name, launches in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(_ROUNDS + 2):
        for name, (graph, _) in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if round_ >= 2:
                samples[name].append(start.elapsed_time(end) * 1000 / len(contenders[name]))
    return {name: Timing(statistics.median(times), min(times), max(times)) for name, times in samples.items()}


def _capture(launches: Sequence[Start]) -> tuple[torch.cuda.CUDAGraph, list[object]]:
    """Return the graph, and the results, which must not share memory."""
    for start in launches[:2]:
        start()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [start() for start in launches]
    return graph, results
