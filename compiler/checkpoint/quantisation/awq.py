"""AWQ: four-bit integers packed along the rows, eight in the order 0 2 4 6 1 3 5 7 in each word.

``qweight`` int32 [K, N / 8], ``qzeros`` int32 [G, N / 8], ``scales`` float16 [G, N].
"""

from __future__ import annotations

from dataclasses import dataclass

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.integers import StoredIntegers, integer_weight
from dfc.compiler.checkpoint.quantisation.module import FLOATS, WORDS, Module, read_floats, read_words
from dfc.compiler.checkpoint.quantisation.patterns import Patterns, read_patterns
from dfc.compiler.checkpoint.quantisation.weight import Array, QuantisedWeight, unpack_words

_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word each of its eight codes stands."""


@dataclass(frozen=True)
class AWQ:
    """``group_size`` 0 is a whole row."""

    group_size: int
    excluded: Patterns

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a layer, see `Method`."""
        plain = module.is_stored_as("weight", FLOATS) and not module.has("qweight")
        if plain or self.excluded.match(module.name):
            return None
        rows, columns = module.shape
        group = self.group_size or columns
        groups = -(-columns // group)
        weights = module.take("qweight", WORDS, (columns, rows // 8))
        scales = module.take("scales", FLOATS, (groups, rows))
        zeros = module.take("qzeros", WORDS, (groups, rows // 8))
        stored = StoredIntegers(
            bits=4,
            group_size=group,
            scale_type=scales.dtype,
            scales=lambda: read_floats(scales).T,
            codes=lambda: _unpack(read_words(weights)).T,
            zero_points=lambda: _unpack(read_words(zeros)).T,
        )
        return integer_weight(module, stored, (weights.file, scales.file, zeros.file))


def read_awq(fields: Fields) -> AWQ:
    """Read the config.

    Raises:
        CheckpointError: it says what cannot be built.
    """
    holder = "bits" if "bits" in fields else "w_bit"
    fields.require(holder, 4)
    version = fields.text("version", "gemm")
    if version.lower() != "gemm":
        raise fields.error("version", f"is {version!r}; only 'gemm' can be built")
    fields.require("zero_point", True, True)
    name = "group_size" if "group_size" in fields else "q_group_size"
    group_size = fields.integer(name, 128, least=-1)
    return AWQ(max(group_size, 0), read_patterns(fields, "modules_to_not_convert"))


def _unpack(words: Array) -> Array:
    codes = unpack_words(words, 4)
    ordered: Array = codes.reshape(len(codes), -1, 8)[..., _PLACES].reshape(codes.shape)
    return ordered
