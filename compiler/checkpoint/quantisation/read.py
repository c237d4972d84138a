"""Which format a checkpoint is quantised in, and its tensors in the form that graphs know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dfc.compiler.checkpoint.expected import Shapes
from dfc.compiler.checkpoint.fields import Fields, read_fields
from dfc.compiler.checkpoint.quantisation.awq import read_awq
from dfc.compiler.checkpoint.quantisation.compressed_tensors import read_compressed_tensors
from dfc.compiler.checkpoint.quantisation.float8 import read_float8
from dfc.compiler.checkpoint.quantisation.gptq import read_gptq
from dfc.compiler.checkpoint.quantisation.method import Method
from dfc.compiler.checkpoint.quantisation.modelopt import read_modelopt
from dfc.compiler.checkpoint.quantisation.module import Module
from dfc.compiler.checkpoint.quantisation.weight import QuantisedWeight
from dfc.compiler.checkpoint.safetensors_index import TensorIndex
from dfc.compiler.checkpoint.spec import TensorLocation

METHODS: Mapping[str, Callable[[Fields], Method]] = {
    "fp8": read_float8,
    "compressed-tensors": read_compressed_tensors,
    "gptq": read_gptq,
    "awq": read_awq,
    "modelopt": read_modelopt,
}
"""The reader of each ``quant_method``."""

MODELOPT_CONFIG = "hf_quant_config.json"

EMBEDDING = "embed_tokens.weight"


def read_method(directory: Path, top: Fields, config: Fields) -> Method | None:
    """Return how a checkpoint is quantised, None for plain weights.

    Raises:
        CheckpointError: the format is not one that can be built, or its config is damaged.
    """
    holder = top.first("quantization_config", config)
    if "quantization_config" in holder:
        fields = holder.section("quantization_config")
        name = fields.text("quant_method")
        if name not in METHODS:
            known = ", ".join(METHODS)
            raise fields.error("quant_method", f"is {name!r}; weights quantised by {known} can be built")
        return METHODS[name](fields)
    beside = directory / MODELOPT_CONFIG
    return read_modelopt(read_fields(beside).section("quantization")) if beside.exists() else None


def take_tensors(
    index: TensorIndex, method: Method | None, shapes: Shapes
) -> tuple[dict[str, TensorLocation], dict[str, QuantisedWeight]]:
    """Return the plain tensors and the quantised ones that a model needs.

    Raises:
        CheckpointError: one is missing, or its type or shape does not fit.
    """
    quantised = {}
    for name, shape in shapes.items():
        if method is not None and len(shape) == 2 and name.endswith(".weight") and not name.endswith(EMBEDDING):
            weight = method.find(Module(index, name.removesuffix(".weight"), (shape[0], shape[1])))
            if weight is not None:
                quantised[name] = weight
    return index.take({name: shape for name, shape in shapes.items() if name not in quantised}), quantised
