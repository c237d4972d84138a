"""Which bytes of which files an ONNX model reads as its weights, without parsing what it computes.

The protobuf fields are those of onnx.proto: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.paths import printable

_MAX_DEPTH = 64

_INNER: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""For each message that can hold a tensor somewhere: its fields that lead there."""

_NODE = 1
_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 8, 13, 14
_KEY, _VALUE = 1, 2
_LOCATION = b"location"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class ExternalTensor:
    """A tensor whose `length` bytes lie at `offset` of the file `location`."""

    name: str
    location: str
    offset: int
    length: int


def external_tensors(data: bytes) -> Iterator[ExternalTensor]:
    """Yield every tensor of an ONNX model that lies in another file, wherever in the model it is.

    Raises:
        ArtifactError: the data is not an ONNX model, or a tensor does not say where and how long it is.
    """
    pending = [("model", memoryview(data), 0)]
    while pending:
        kind, message, depth = pending.pop()
        if kind == "tensor":
            tensor = _external(message)
            if tensor is not None:
                yield tensor
            continue
        if depth > _MAX_DEPTH:
            raise ArtifactError(f"graphs are nested more than {_MAX_DEPTH} deep")
        inner = _INNER[kind]
        for field, value in _fields(message):
            if field in inner:
                below = _bytes(value)
                # Nearly all nodes hold no tensor: a search for the key that an external one must have is much faster.
                if kind == "graph" and field == _NODE and _LOCATION not in bytes(below):
                    continue
                pending.append((inner[field], below, depth + 1))


def _external(message: memoryview) -> ExternalTensor | None:
    name, entries, is_external = "", {}, False
    for field, value in _fields(message):
        if field == _NAME:
            name = _text(value)
        elif field == _EXTERNAL_DATA:
            pair = {key: _text(text) for key, text in _fields(_bytes(value)) if key in (_KEY, _VALUE)}
            entries[pair.get(_KEY, "")] = pair.get(_VALUE, "")
        elif field == _DATA_LOCATION:
            is_external = bool(value)
    if not entries and not is_external:
        return None
    shown = printable(name)
    if "location" not in entries:
        raise ArtifactError(f"tensor {shown} does not say in which file it lies")
    return ExternalTensor(
        shown, entries["location"], _number(entries, "offset", shown), _number(entries, "length", shown)
    )


def _number(entries: dict[str, str], key: str, tensor: str) -> int:
    text = entries.get(key, "")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ArtifactError(f"tensor {tensor} has no {key} that is a whole number")
    return int(text)


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field of one message."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield field, value
            continue
        if wire == _BYTES:
            length, position = _varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ArtifactError(f"it has a field of the unknown kind {wire}")
        if field == 0 or length > end - position:
            raise ArtifactError("it is cut short or damaged")
        yield field, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ArtifactError("it is cut short or damaged")


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ArtifactError("it is cut short or damaged")
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_bytes(value)).decode("utf-8", "backslashreplace")
