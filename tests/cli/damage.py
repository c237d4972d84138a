"""Damage to files."""

from __future__ import annotations

import random
from pathlib import Path


def flip_bit(path: Path, seed: object) -> bytes:
    """Flip a bit at a random place and return what was there before."""
    source = random.Random(str(seed))
    sound = path.read_bytes()
    place = source.randrange(len(sound))
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([sound[place] ^ 1 << source.randrange(8)]))
    return sound
