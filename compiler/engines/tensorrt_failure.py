"""Where a builder failed: the library's layer, and the ONNX node that it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterable

import onnx_ir as ir

MOST_CHARACTERS = 200

_LAYER = re.compile(r"\{[^{}\n]+\}")
_LAYER_NODES = re.compile(r"\[ONNX Layer: ([^\]]*)\]")


def locate(error: str, lines: Iterable[str], model: ir.Model) -> str:
    """Return ` in layer L, at node N (Operator)`, as much of it as the library's messages tell.

    The layer is the last one that the library spoke of. The node is one that the error names, else the only one or the
    first of the layer whose operator the error names, else the first of the layer.
    """
    said = list(lines)
    layer = next((found[-1] for line in [error, *reversed(said)] if (found := _LAYER.findall(line))), "")
    node = _node(error, layer, said, list(model.graph))
    where = f" in layer {shorten(layer, 120)}" if layer else ""
    return f"{where}, at node {node.name} ({node.op_type})" if node is not None else where


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text in one line of at most `most` characters; the log has all of it."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _node(error: str, layer: str, lines: list[str], nodes: list[ir.Node]) -> ir.Node | None:
    # A name may begin another one: the longest that fits is meant.
    named = [node for node in nodes if node.name and node.name in error]
    if named:
        return max(named, key=lambda node: len(node.name or ""))
    members = {
        name for line in lines if layer and layer in line for name in _LAYER_NODES.findall(line.partition(layer)[2])
    }
    inside = [node for node in nodes if node.name in members]
    words = set(re.findall(r"\w+", error))
    return next((node for node in inside or nodes if node.op_type in words), inside[0] if inside else None)
