"""Mutations of an artifact's headers, read in a process of its own with little memory: `python -m ... ROOT COUNT`.

Prints one JSON object: for each kind of file how many mutations were taken and how many refused.
"""

from __future__ import annotations

import json
import random
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from dfc.artifacts import ArtifactError, open_artifact
from dfc.artifacts.reader import read_manifest
from dfc.artifacts.tensors import check_file
from dfc.artifacts.verification import examine

MEMORY = 512 << 20
TOKENS = [
    b"null", b"[", b"{", b"]", b'"', b"-1", b"1e999", b"9" * 30, b"9" * 5000, b"18446744073709551615", b"NaN", b"true",
    b"../outside", b"/etc/passwd", b"a\\u0000b", b"\\ud800", b"\xff" * 10, b"\x00" * 8, b"[" * 3000,
    b"\xff\xff\xff\xff\x0f",
]  # fmt: skip


def mutate(data: bytes, source: random.Random) -> bytes:
    """Return the data changed at one to three places."""
    for _ in range(source.randint(1, 3)):
        data = _mutate_once(data, source)
    return data


def _mutate_once(data: bytes, source: random.Random) -> bytes:
    begin = source.randrange(len(data) + 1)
    end = min(len(data), begin + source.choice((0, 1, 1, 2, 8, 64, 1024)))
    match source.randrange(7):
        case 0 if data:
            place = source.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1 << source.randrange(8)]) + data[place + 1 :]
        case 1:
            return data[:begin]
        case 2:
            return data[:begin] + data[end:]
        case 3:
            return data[:begin] + data[begin:end] * 2 + data[end:]
        case 4:
            return data[:begin] + source.randbytes(end - begin) + data[end:]
        case 5:
            numbers = list(re.finditer(rb"\d+", data))
            if numbers:
                number = source.choice(numbers)
                return data[: number.start()] + source.choice(TOKENS) + data[number.end() :]
    return data[:begin] + source.choice(TOKENS) + data[end:]


def read_manifest_of(root: Path, name: str) -> None:
    """Read a manifest and, when it is taken, check what a loader would rely on."""
    manifest = read_manifest(root)
    for weight in manifest.weights.values():
        for part in weight.parts:
            assert 0 <= part.offset <= part.offset + part.length <= manifest.files[part.file].size
    for path in manifest.files:
        assert (root / path).resolve().is_relative_to(root.resolve()), path
    open_artifact(root)


def main(root: Path, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    manifest = read_manifest(root)
    engine = next(name for name in manifest.files if name.endswith(".onnx"))
    weights = next(name for name in manifest.files if name.endswith(".safetensors"))
    readers: dict[str, Callable[[Path, str], None]] = {
        "manifest.json": read_manifest_of,
        engine: lambda root, name: check_file(root, name, manifest),
        weights: lambda root, name: check_file(root, name, manifest),
    }
    outcomes: dict[str, dict[str, int]] = {}
    messages: list[str] = []
    for kind, (name, read) in enumerate(readers.items()):
        sound, taken, refused = (root / name).read_bytes(), 0, 0
        share = count // len(readers) + (kind < count % len(readers))
        for seed in range(share):
            # A file cut to nothing and written again is flushed to the disk by some filesystems, a new one is not.
            (root / name).unlink()
            (root / name).write_bytes(mutate(sound, random.Random(f"{name} {seed}")))
            try:
                read(root, name)
                taken += 1
            except ArtifactError as error:
                refused += 1
                messages.append(str(error))
            if seed % 20 == 0:
                examine(root)
        (root / name).write_bytes(sound)
        outcomes[name] = {"taken": taken, "refused": refused}
    assert not [message for message in messages if not message.isprintable()]
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
