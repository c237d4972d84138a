"""compressed-tensors: packed integers, int8 and e4m3, each with its groups, as llm-compressor publishes them.

Formats ``pack-quantized`` (``weight_packed`` int32 [N, K * bits / 32], codes are the integers plus half their range),
``int-quantized`` (``weight`` int8), ``float-quantized`` (``weight`` e4m3) and ``naive-quantized`` (either of the last
two). ``weight_scale`` is [N, G], [N, 1] a row, [1] a tensor or one a block; ``weight_zero_point`` [N, G] int8, or int32
packed along the rows; ``weight_g_idx`` [K] the group of each column where columns were reordered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.float8 import float8_weight
from dfc.compiler.checkpoint.quantisation.integers import Read, StoredIntegers, integer_weight
from dfc.compiler.checkpoint.quantisation.module import FLOATS, OCTETS, WORDS, Module, read_floats, read_words, viewed
from dfc.compiler.checkpoint.quantisation.patterns import Patterns, read_patterns
from dfc.compiler.checkpoint.quantisation.weight import Array, QuantisedWeight, matmul_block, read_stored, unpack_words
from dfc.compiler.checkpoint.spec import TensorLocation

PACKED, INTEGERS, FLOATING, NAIVE = "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"

_WHOLE_LAYER = ("Linear",)
"""The class that targets name when they mean every linear layer."""


@dataclass(frozen=True)
class Scheme:
    """One group of the config: how the layers that it names are stored. ``group_size`` 0 is a whole row."""

    targets: Patterns
    every_layer: bool
    format: str
    kind: str
    bits: int
    symmetric: bool
    strategy: str
    group_size: int
    block: tuple[int, int]
    reordered: bool


@dataclass(frozen=True)
class CompressedTensors:
    """The schemes of a checkpoint in the order of its config."""

    schemes: tuple[Scheme, ...]
    ignored: Patterns

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a layer, see `Method`."""
        plain = module.is_stored_as("weight", FLOATS) and not module.has("weight_scale")
        if plain or self.ignored.match(module.name):
            return None
        for scheme in self.schemes:
            if scheme.every_layer or scheme.targets.match(module.name):
                return _float8(module, scheme) if scheme.kind == "float" else _integers(module, scheme)
        return None


def read_compressed_tensors(fields: Fields) -> CompressedTensors:
    """Read the config.

    Raises:
        CheckpointError: it says what cannot be built.
    """
    sparsity = fields.section("sparsity_config")
    if "format" in sparsity:
        sparsity.require("format", "dense")
    groups = fields.section("config_groups")
    schemes = tuple(_scheme(groups.section(name), fields) for name in groups.names)
    return CompressedTensors(schemes, read_patterns(fields, "ignore"))


def _scheme(group: Fields, top: Fields) -> Scheme:
    holder = group.first("format", top)
    stored, weights = holder.text("format", PACKED), group.section("weights")
    kind, bits = weights.text("type", "int"), weights.integer("num_bits", 8)
    allowed = {
        PACKED: (("int", 4), ("int", 8)),
        INTEGERS: (("int", 8),),
        FLOATING: (("float", 8),),
        NAIVE: (("int", 8), ("float", 8)),
    }
    if stored not in allowed:
        raise holder.error("format", f"is {stored!r}; {', '.join(allowed)} can be built")
    if (kind, bits) not in allowed[stored]:
        raise weights.error("num_bits", f"is {bits} of type {kind!r}, which cannot be built in the format {stored}")
    strategy = weights.text("strategy", "tensor")
    if strategy not in ("tensor", "channel", "group", "block") or (strategy == "block" and kind == "int"):
        raise weights.error("strategy", f"is {strategy!r}, which cannot be built for weights of type {kind!r}")
    block = weights.integers("block_structure", (128, 128)) if strategy == "block" else (1, 1)
    if len(block) != 2 or min(block) < 1:
        raise weights.error("block_structure", "is not two numbers of rows and columns")
    order = weights.text_or_flag("actorder", False)
    if order not in (False, True, "group", "dynamic", "weight", "static"):
        raise weights.error("actorder", f"is {order!r}, which cannot be built")
    return Scheme(
        targets=read_patterns(group, "targets"),
        every_layer=bool(set(_WHOLE_LAYER) & set(group.texts("targets", _WHOLE_LAYER))),
        format=stored,
        kind=kind,
        bits=bits,
        symmetric=weights.boolean("symmetric", True),
        strategy=strategy,
        group_size=weights.integer("group_size") if strategy == "group" else 0,
        block=(block[0], block[1]),
        reordered=order in (True, "group", "dynamic"),
    )


def _float8(module: Module, scheme: Scheme) -> QuantisedWeight:
    rows, columns = module.shape
    block = {
        "tensor": (rows, columns),
        "channel": (1, columns),
        "group": (1, scheme.group_size),
        "block": scheme.block,
    }[scheme.strategy]
    return float8_weight(module, "weight_scale", block)


def _integers(module: Module, scheme: Scheme) -> QuantisedWeight:
    rows, columns = module.shape
    group = scheme.group_size or columns
    groups = columns // group
    if scheme.format == PACKED:
        values = module.take("weight_packed", WORDS, (rows, -(-columns * scheme.bits // 32)))
    else:
        values = module.take("weight", {"I8": "uint8"}, module.shape)
    scales = module.take("weight_scale", FLOATS, (1,) if scheme.strategy == "tensor" else (rows, groups))
    points = None if scheme.symmetric else _zero_points(module, scheme, groups)
    order = module.take("weight_g_idx", WORDS, (columns,)) if scheme.reordered else None
    # Packed codes that stay in their order are the form that graphs know, byte for byte.
    stays = scheme.format == PACKED and order is None and matmul_block(group) and columns % group == 0
    stored = StoredIntegers(
        bits=scheme.bits,
        group_size=group,
        scale_type=scales.dtype,
        scales=lambda: np.broadcast_to(read_floats(scales).reshape(-1, groups), (rows, groups)),
        stored_scales=None if scheme.strategy == "tensor" else scales,
        codes=None if stays else lambda: _codes(values, scheme, columns),
        values=viewed(values, _shape(module.shape, group, scheme.bits)) if stays else None,
        zero_points=points,
        groups=None if order is None else lambda: read_words(order),
    )
    return integer_weight(module, stored, (values.file, scales.file))


def _shape(shape: tuple[int, int], group: int, bits: int) -> tuple[int, int, int]:
    block = matmul_block(group)
    return shape[0], shape[1] // block, block * bits // 8


def _codes(values: TensorLocation, scheme: Scheme, columns: int) -> Array:
    if scheme.format == PACKED:
        return unpack_words(read_words(values), scheme.bits)[:, :columns]
    return read_stored(values).reshape(values.shape) ^ 0x80


def _zero_points(module: Module, scheme: Scheme, groups: int) -> Read:
    rows = module.shape[0]
    half = 1 << (scheme.bits - 1)
    if module.is_stored_as("weight_zero_point", OCTETS):
        plain = module.take("weight_zero_point", OCTETS, (1,) if scheme.strategy == "tensor" else (rows, groups))
        return lambda: np.broadcast_to(
            (read_stored(plain).view(np.int8).astype(np.int16) + half).astype(np.uint8).reshape(-1, groups),
            (rows, groups),
        )
    packed = module.take("weight_zero_point", WORDS, (-(-rows * scheme.bits // 32), groups))
    return lambda: unpack_words(read_words(packed).T, scheme.bits)[:, :rows].T
