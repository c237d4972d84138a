"""Time every engine of an artifact by itself, beside the bytes it must move; weights and states are random."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.plugins.floor import copy_bandwidth
from dfc.artifacts import Engine, Manifest, Stage
from dfc.plugins.libraries import tensorrt_rtx
from dfc.runtime.engines.cuda import ITEM_SIZES, CudaDevice
from dfc.runtime.engines.tensorrt_rtx import BACKEND, open_runtime

LAUNCHES, REPLAYS = 5, 20
BLOCK = 1 << 26


class RandomMemory:
    """Device memory for every tensor, by name and size; bfloat16 values near 0.02 in size, or the numbers given."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._held: dict[tuple[str, int], Any] = {}
        values = (np.random.default_rng(0).standard_normal(BLOCK // 2) * 0.02).astype(np.float32)
        self._block = device.allocate(BLOCK, "random numbers")
        device.upload(self._block, 0, (values.view(np.uint32) >> 16).astype(np.uint16))

    def get(self, name: str, size: int, numbers: np.ndarray[Any, Any] | None = None) -> int:
        """Return an address."""
        name = name.split("#")[0]
        if (name, size) not in self._held:
            memory = self._held[name, size] = self._device.allocate(size, "random numbers")
            if numbers is not None:
                self._device.upload(memory, 0, numbers)
            else:
                for begin in range(0, size, BLOCK):
                    length = min(BLOCK, size - begin)
                    target = self._device.part(memory, begin, length)
                    self._device.part(self._block, 0, length).copy_to(target, stream=self._device.stream)
        return int(self._held[name, size].handle)


def needed_bytes(stage: Stage, file: Engine, sizes: dict[str, int]) -> int:
    """Return what a call must read and write: weights, states, and the cache rows it looks at."""
    roles = {tensor.name: tensor for tensor in (*stage.inputs, *stage.outputs)}
    # The multi-token head reads its weights anew in every step.
    drafts = next((tensor.shape[-1] for tensor in stage.outputs if tensor.name == "draft_tokens"), 1)
    reads = int(drafts) if stage.component == "mtp" else 1
    total = 0
    for name, size in sizes.items():
        tensor = roles.get(name)
        if tensor is None:
            # Of the embedding only the rows of the tokens are read.
            total += 0 if "embed_tokens" in name else size * reads
        elif tensor.role == "state":
            total += size
        elif tensor.role == "cache" and tensor.alias is None:
            capacity = next(dimension for dimension in tensor.shape[2:3] if isinstance(dimension, int))
            total += size * file.sizes["context"] // capacity
    return total


def numbers(name: str, shape: tuple[int, ...], file: Engine) -> np.ndarray[Any, Any] | None:
    """Return a control input's values: a full round near the end of the context."""
    rows = file.sizes["T"]
    known = {"lengths": file.sizes["context"] - rows - 16, "valid": rows, "forced": 1, "anchor": 7}
    if name in known:
        return np.full(shape, known[name], np.int64)
    if name in ("judged", "slots"):
        return np.arange(shape[0], dtype=np.int64)
    if name in ("input_ids", "next_ids"):
        return np.arange(math.prod(shape), dtype=np.int64) % 1000
    return None


@click.command()
@click.argument("artifacts", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="Part of the engines' paths.")
@click.option("--profile", type=click.Path(path_type=Path), help="Folder for the times of every layer of every engine.")
def main(artifacts: tuple[Path, ...], only: str, profile: Path | None) -> None:
    """Time the engines of ARTIFACTS, which need no weights."""
    bandwidth = copy_bandwidth() * 1e6
    device = CudaDevice()
    runtime = open_runtime(device)
    memory = RandomMemory(device)
    print(f"{device.name}: a copy kernel moves {bandwidth / 1e12:.2f} TB/s")
    for artifact in artifacts:
        manifest = Manifest.load(artifact / "manifest.json")
        for stage in manifest.stages.values():
            for file in stage.engines[BACKEND]:
                if only in file.path and (artifact / file.path).exists():
                    time_engine(artifact, manifest, stage, file, device, runtime, memory, bandwidth, profile)


def time_engine(
    artifact: Path,
    manifest: Manifest,
    stage: Stage,
    file: Engine,
    device: CudaDevice,
    runtime: Any,
    memory: RandomMemory,
    bandwidth: float,
    profile: Path | None,
) -> None:
    """Print one engine's line."""
    loaded = runtime.load(artifact / file.path, file, manifest)
    shapes = loaded.shapes
    sizes = {name: math.prod(shape) * ITEM_SIZES[loaded.dtypes[name]] for name, shape in shapes.items()}
    aliases = {tensor.name: tensor.alias for tensor in stage.outputs if tensor.role == "cache"}
    addresses = {
        name: memory.get(aliases.get(name) or name, size, numbers(name, shapes[name], file))
        for name, size in sizes.items()
    }
    loaded.bind(addresses, memory)
    graph = device.record(lambda stream: [loaded.enqueue(int(stream.stream.handle)) for _ in range(LAUNCHES)])
    times = [device.time(graph) / LAUNCHES for _ in range(REPLAYS + 3)][3:]
    floor = needed_bytes(stage, file, sizes) / bandwidth * 1e6
    median = statistics.median(times)
    print(
        f"{file.path.removeprefix('stages/'):60s} {median:8.1f} us, floor {floor:8.1f}, ratio {median / floor:5.2f},"
        f" scratch {loaded.scratch_size / 1e6:7.1f} MB  {artifact.name}",
        flush=True,
    )
    if profile is not None:
        profile.mkdir(parents=True, exist_ok=True)
        name = f"{artifact.name}-{file.path.replace('/', '-')}.json"
        (profile / name).write_text(json.dumps(layer_times(loaded, device)))


def layer_times(loaded: Any, device: CudaDevice) -> list[tuple[str, float]]:
    """Return microseconds of every layer, the medians of some runs, in order."""
    library = tensorrt_rtx()
    runs: list[list[tuple[str, float]]] = []

    class Profiler(library.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            library.IProfiler.__init__(self)

        def report_layer_time(self, name: str, milliseconds: float) -> None:
            runs[-1].append((name, milliseconds * 1e3))

    profiler = loaded.context.profiler = Profiler()
    for _ in range(7):
        runs.append([])
        loaded.enqueue(device.stream_address)
        device.stream.sync()
    del profiler
    return [(name, statistics.median(run[index][1] for run in runs[2:])) for index, (name, _) in enumerate(runs[-1])]


if __name__ == "__main__":
    main()
