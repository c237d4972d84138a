"""Where a node of a backend's graph comes from: the stage graph's nodes that a rule or a rewrite replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

_KEY = "dfc.origins"
_LAYER = re.compile(r"(.*?layers\.\d+)\.")


@dataclass(frozen=True)
class Origin:
    """A node of a stage graph: where it is, such as ``target.model.layers.3``, its operator and its position."""

    place: str
    domain: str
    operator: str
    position: int


def name_origins(graph: ir.Graph) -> None:
    """Note at every node of a finished stage graph what it is there.

    A node's place is the layer, or else the module, of the last weight that was used up to there.
    """
    place = ""
    for position, node in enumerate(graph):
        found = _place(node)
        # Weights are converted ahead of their use, for several layers at once.
        if found and node.op_type != "Cast":
            place = found
        node.meta[_KEY] = (Origin(found or place, node.domain, node.op_type, position),)


def origins(node: ir.Node) -> tuple[Origin, ...]:
    """Return the stage graph's nodes that this one comes from, none when it is not known."""
    found: tuple[Origin, ...] = node.meta.get(_KEY, ())
    return found


def origin_text(node: ir.Node) -> str:
    """Return the origins in a few words: ``target.model.layers.3/Linear_17+Linear_19``."""
    words = []
    place = None
    for origin in origins(node):
        name = f"{origin.operator}_{origin.position}"
        words.append(name if origin.place in ("", place) else f"{origin.place}/{name}")
        place = origin.place
    return "+".join(words)


def set_origins(made: Iterable[ir.Node], replaced: Iterable[ir.Node]) -> None:
    """Say that nodes stand for others; one that is known to stand for something keeps that."""
    joined = tuple(dict.fromkeys(origin for node in replaced for origin in origins(node)))
    for node in made:
        if joined and not origins(node):
            node.meta[_KEY] = joined


def nodes_after(graph: ir.Graph, last: ir.Node | None) -> Iterator[ir.Node]:
    """Yield the nodes behind `last`, from the end; all of them without it."""
    for node in reversed(graph):
        if node is last:
            return
        yield node


def last_node(graph: ir.Graph) -> ir.Node | None:
    """Return the node at the end, None in an empty graph."""
    return next(iter(reversed(graph)), None)


def made_by(value: ir.Value) -> ir.Node:
    """Return the node that computes a value."""
    node = value.producer()
    assert node is not None
    return node


def _place(node: ir.Node) -> str:
    for value in node.inputs:
        producer = None if value is None else value.producer()
        if producer is not None and producer.op_type == "Cast":
            value = producer.inputs[0]
        if value is not None and isinstance(value.const_value, ir.ExternalTensor):
            name = str(value.name)
            layer = _LAYER.match(name)
            return layer[1] if layer else name.rpartition(".")[0]
    return ""
