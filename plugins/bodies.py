"""The function body of every custom operator, found by folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import dfc.plugins

if TYPE_CHECKING:
    import onnx_ir as ir
    from onnxscript import OpBuilder

DOMAIN = "dfc"

Body = Callable[["OpBuilder", "ir.Node"], "Sequence[ir.Value]"]


def rules() -> dict[tuple[str, str], Body]:
    """Return, for each operator (domain, name), the function that writes its body in place of a node."""
    found: dict[tuple[str, str], Body] = {}
    for module in pkgutil.iter_modules(dfc.plugins.__path__):
        if module.ispkg:
            body = importlib.import_module(f"dfc.plugins.{module.name}.body")
            found[DOMAIN, body.OP_TYPE] = body.lower
    return found
