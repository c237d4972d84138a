"""Time per token of a mixture of 8 and of 256 experts of the same size: it should grow with the chosen ones alone.

Experts are large enough that eight of them do not stay in a processor's cache.

python -m benchmarks.cpu.mixture
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from tests.end_to_end.decoding import build, new_tokens, open_decoder
from tests.oracle.random_checkpoints import Experts, TargetGeometry, write_target

TOKENS = 32
REPEATS = 5


def main() -> None:
    """Print milliseconds per token, the two taking turns, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        decoders = {}
        for count in (8, 256):
            experts = Experts(count=count, chosen=8, width=512, shared_width=512)
            geometry = TargetGeometry(layers="a", hidden_size=1024, experts=experts, mtp=False)
            checkpoint = write_target(Path(folder, f"target-{count}"), geometry)
            decoders[count] = open_decoder(build(Path(folder, f"artifact-{count}"), checkpoint), "none")
        times: dict[int, list[float]] = {count: [] for count in decoders}
        for _ in range(REPEATS):
            for count, decoder in decoders.items():
                began = time.perf_counter()
                new_tokens(decoder, [5, 77, 130], TOKENS)
                times[count].append(1000 * (time.perf_counter() - began) / TOKENS)
    few, many = (median(times[count]) for count in (8, 256))
    print(f"8 experts {few:.3f} ms a token, 256 experts {many:.3f} ms, ratio {many / few:.2f}")


if __name__ == "__main__":
    main()
