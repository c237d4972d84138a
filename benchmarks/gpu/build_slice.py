"""Build engines of a slice of the 27B geometry: three Gated DeltaNet layers, one of attention, and whole drafters."""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from dfc.compiler.build import BuildRequest, build_artifact
from tests.oracle.sparse_checkpoints import write_27b_dflash2, write_27b_target

LAYERS = 4


@click.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--max-context", default=4096 - 8 - 256, help="4,096 cache rows together with a round and a chunk.")
def main(output: Path, max_context: int) -> None:
    """Write the artifact to OUTPUT, without its weights: they are holes, and the benchmark makes its own."""
    with tempfile.TemporaryDirectory() as folder:
        target = write_27b_target(Path(folder) / "target", shards=2, layers=LAYERS)
        draft = write_27b_dflash2(Path(folder) / "draft", LAYERS)
        began = last = time.perf_counter()
        name = ""

        def report(line: str) -> None:
            nonlocal last, name
            now = time.perf_counter()
            if name:
                print(f"{now - last:6.1f} s  {name}", flush=True)
            last, name = now, line

        built = Path(folder) / "artifact"
        build_artifact(BuildRequest(target, (draft,), built, "tensorrt-rtx", max_context=max_context), report)
        report("")
        output.mkdir(parents=True)
        shutil.copytree(built / "stages", output / "stages")
        shutil.copy(built / "manifest.json", output)
    for engine in sorted(output.glob("stages/*/*/*.engine")):
        print(f"{engine.stat().st_size / 1e6:8.2f} MB  {engine.relative_to(output)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{time.perf_counter() - began:.1f} s in all, {peak:.2f} GB of memory at most")


if __name__ == "__main__":
    sys.exit(main())
