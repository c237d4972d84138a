"""Measure the kernels of the custom operators: `python -m benchmarks.plugins.compare --output FILE`, on a GPU."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.plugins import convolution, selector
from benchmarks.plugins.floor import copy_bandwidth, empty
from benchmarks.plugins.selector import CANDIDATES
from benchmarks.plugins.timing import compare, launches_for
from dfc.plugins.top_candidates.launch import TopCandidatesGeometry
from tests.plugins.driver import LoadedKernel

CONVOLUTIONS = ((1, 8, 5120), (8, 8, 5120), (4096, 8, 5120))
SELECTORS = ((1, 7), (32, 7), (1, 15))
TOP_K = ((7, 248320), (224, 248320))


def main() -> None:
    """Measure everything in one run and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args().output
    torch.manual_seed(0)
    bandwidth = copy_bandwidth()
    print(f"copy: {bandwidth / 1e6:.3f} TB/s", flush=True)
    rows: list[dict[str, Any]] = []
    for shape in CONVOLUTIONS:
        for with_residual in (False, True):
            rows += show(convolution.measure(*shape, with_residual, bandwidth))
            torch.cuda.empty_cache()
    books = selector.codebooks()
    for batch, slots in SELECTORS:
        rows += show(selector.measure(batch, slots, books))
    for batch, vocabulary in TOP_K:
        rows += show(measure_top_k(batch, vocabulary))
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    output.write_text(json.dumps({"machine": machine, "copy_bytes_per_microsecond": bandwidth, "rows": rows}, indent=1))


def measure_top_k(batch: int, vocabulary: int) -> list[dict[str, Any]]:
    """Time the top candidates over bf16 logits, and PyTorch's top-K."""
    count = launches_for(2 * batch * vocabulary)
    logits = [torch.randn(1, batch, vocabulary, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    geometry = TopCandidatesGeometry(CANDIDATES, vocabulary, vocabulary, "bfloat16")
    kernel, launch = LoadedKernel(geometry.kernel()), geometry.launch(1, batch)
    starts = []
    for rows in logits:
        values = torch.empty(1, batch, CANDIDATES, device="cuda", dtype=torch.bfloat16)
        ids = torch.empty_like(values, dtype=torch.int64)
        starts.append(kernel.bind(launch, [rows], [values, ids]))
    contenders: dict[str, list[Callable[[], object]]] = {
        "empty kernel": [empty] * count,
        "dfc": starts,
        "torch.topk": [lambda rows=rows: torch.topk(rows, CANDIDATES) for rows in logits],
    }
    shape = f"[{batch}, {vocabulary}], K={CANDIDATES}"
    return [
        {
            "operator": "top_k",
            "shape": shape,
            "contender": name,
            "microseconds": timing.median,
            "low": timing.low,
            "high": timing.high,
        }
        for name, timing in compare(contenders).items()
    ]


def show(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print rows and hand them on."""
    for row in rows:
        print(f"{row['operator']:13} {row['shape']:38} {row['contender']:46} {row['microseconds']:9.2f} us", flush=True)
    return rows


if __name__ == "__main__":
    main()
