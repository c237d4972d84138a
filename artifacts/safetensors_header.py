"""Whether a safetensors file's header is sound, read no further than a bound.

The format: https://github.com/huggingface/safetensors#format
"""

import json
import os
import struct
from pathlib import Path
from typing import Any

from dfc.artifacts.bounded import open_regular
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.paths import printable

MAX_HEADER_BYTES = 16 << 20
"""Ten times what a shard of the largest model needs: a damaged or hostile file must not cost memory."""


def check_safetensors(path: Path) -> None:
    """Check that the header is within bounds and that every tensor lies inside the file.

    Raises:
        ArtifactError: it is not, or the file cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 0 < length <= size - 8:
                raise ArtifactError(f"{path} is damaged: its header does not fit into it")
            if length > MAX_HEADER_BYTES:
                raise ArtifactError(f"{path} has a header of {length} bytes, more than {MAX_HEADER_BYTES}")
            header = file.read(length)
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror}") from None
    try:
        content = json.loads(header)
    except (ValueError, RecursionError):
        raise ArtifactError(f"{path} is damaged: its header is not JSON") from None
    if not isinstance(content, dict):
        raise ArtifactError(f"{path} is damaged: its header is not an object")
    for name, entry in content.items():
        if name != "__metadata__" and not _lies_inside(entry, size - 8 - length):
            raise ArtifactError(f"{path} is damaged: tensor {printable(name)} does not lie inside the file")


def _lies_inside(entry: Any, size: int) -> bool:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        return False
    begin, end = offsets
    return bool(0 <= begin <= end <= size)
