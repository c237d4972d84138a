"""What the machine is and what it can do: read bandwidth and arithmetic. Run as `machine.py BYTES THREADS`."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from worker import limit_threads

_FAR_BYTES = 512 << 20
"""More than any cache: what is read is in main memory."""

_MATRIX_SIZE = 1536
_SECONDS = 0.7
"""How long each kernel is repeated; the best pass counts."""


def describe() -> dict[str, str]:
    """Return processor, cores, kernel and Python version."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return {
        "processor": fields.get("model name", platform.processor()),
        "cores": str(os.cpu_count()),
        "cache": fields.get("cache size", "unknown"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def busy_seconds() -> float:
    """Return the core seconds that all processes of the machine, and others on its host, have used since it started."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    user, nice, system, _, _, irq, softirq, steal = (int(value) for value in first[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measure(working_set: int, threads: int) -> dict[str, float]:
    """Return bytes read a second, from a set of `working_set` bytes and from main memory, and fp32 operations a second.

    The read bandwidth is that of the fastest of three numpy kernels; each core has a part of the set and reads it again
    and again, as a model reads its weights for every token.
    """
    return {
        "working_set_bytes": working_set,
        "read_bytes_per_second": _read_bandwidth(working_set, threads),
        "memory_read_bytes_per_second": _read_bandwidth(_FAR_BYTES, threads),
        "operations_per_second": _operations(),
    }


def _read_bandwidth(size: int, threads: int) -> float:
    import numpy as np

    parts = [np.ones(size // threads // 4, dtype=np.float32) for _ in range(threads)]
    whole = sum(part.nbytes for part in parts)
    joined = np.ones(whole // 4, dtype=np.float32)
    vector = np.ones(1024, dtype=np.float32)
    matrix = joined[: joined.size // 1024 * 1024].reshape(-1, 1024)
    with ThreadPoolExecutor(threads) as pool:
        kernels: tuple[Callable[[], Any], ...] = (
            lambda: list(pool.map(np.max, parts)),
            lambda: np.dot(joined, joined),
            lambda: matrix @ vector,
        )
        return max(whole / _best(kernel) for kernel in kernels)


def _operations() -> float:
    import numpy as np

    left = np.ones((_MATRIX_SIZE, _MATRIX_SIZE), dtype=np.float32)
    right = np.ones_like(left)
    return float(2 * _MATRIX_SIZE**3 / _best(lambda: left @ right))


def _best(kernel: Callable[[], Any]) -> float:
    best = float("inf")
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        kernel()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    limit_threads(int(sys.argv[2]))
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
