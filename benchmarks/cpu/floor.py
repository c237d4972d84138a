"""The least time a token can take: weights read once a call against bandwidth, multiplications against arithmetic."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class WeightCounts:
    """Elements of the matrices one call multiplies with: layers and head, without the embedding table."""

    target: int
    head: int
    mtp: int
    dflash2: int


@dataclass(frozen=True)
class Floor:
    """What one new token costs at least; divided by the tokens of a round where a round gives several."""

    weight_bytes: float
    operations: float

    def seconds(self, bytes_per_second: float, operations_per_second: float) -> float:
        """Return the larger of the two times; reading and computing can overlap."""
        return max(self.weight_bytes / bytes_per_second, self.operations / operations_per_second)


def count_weights(target: Path, dflash2: Path) -> WeightCounts:
    """Count the elements in the safetensors headers of the two checkpoints."""
    sizes = _element_counts(target)
    head = sizes.get("lm_head.weight", sizes["model.embed_tokens.weight"])
    mtp = sum(count for name, count in sizes.items() if name.startswith("mtp."))
    layers = sum(count for name, count in sizes.items() if name.startswith("model.layers."))
    return WeightCounts(target=layers + head, head=head, mtp=mtp, dflash2=sum(_element_counts(dflash2).values()))


def floor(counts: WeightCounts, speculation: str, draft_tokens: int, tokens_per_round: float) -> Floor:
    """Return the floor of fp32 decoding.

    A round reads the target once for its 1 + `draft_tokens` rows. MTP reads its layer and the head once a draft token,
    DFlash2 its layers and the head once a block. States, caches and activations are left out: they are small here.
    """
    rows = 1 + draft_tokens
    if speculation == "mtp":
        draft_read = draft_operations = draft_tokens * (counts.mtp + counts.head)
    elif speculation == "dflash2":
        draft_read = counts.dflash2 + counts.head
        draft_operations = rows * counts.dflash2 + draft_tokens * counts.head
    else:
        draft_read = draft_operations = 0
    read = FLOAT32_BYTES * (counts.target + draft_read)
    operations = 2 * (rows * counts.target + draft_operations)
    return Floor(read / tokens_per_round, operations / tokens_per_round)


def _element_counts(checkpoint: Path) -> dict[str, int]:
    counts = {}
    for shard in sorted(checkpoint.glob("*.safetensors")):
        with shard.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                counts[name] = math.prod(entry["shape"])
    return counts
