"""Appending nodes to a graph by their operators' names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnxscript import GraphBuilder


@dataclass(frozen=True)
class _Signature:
    """What a node of an operator takes; the attributes in the order in which they are written."""

    fewest_inputs: int
    most_inputs: int
    attributes: tuple[str, ...]
    required: frozenset[str]


class NodeBuilder(GraphBuilder):
    """onnxscript's builder for nodes whose inputs are given by position and attributes by name.

    onnxscript makes a signature out of the operator's schema for every node, which takes a third of a build.
    """

    def _partition_inputs_attributes(
        self, schema: onnx.defs.OpSchema | None, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        if schema is None:
            return args, kwargs
        signature = _signature(schema.name, schema.since_version, schema.domain)
        if not signature.fewest_inputs <= len(args) <= signature.most_inputs:
            raise TypeError(
                f"{schema.name} takes {signature.fewest_inputs} to {signature.most_inputs} inputs, not {len(args)}"
            )
        if wrong := kwargs.keys() - set(signature.attributes) | signature.required - kwargs.keys():
            raise TypeError(f"{schema.name}: attributes {sorted(wrong)} are unknown or missing")
        return args, {name: kwargs[name] for name in signature.attributes if name in kwargs}


@cache
def _signature(operator: str, version: int, domain: str) -> _Signature:
    schema = onnx.defs.get_schema(operator, version, domain)
    attributes = schema.attributes
    required = frozenset(name for name, attribute in attributes.items() if attribute.required)
    return _Signature(schema.min_input, schema.max_input, tuple(attributes), required)
