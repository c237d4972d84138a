"""GPTQ: integers packed along the columns that a product sums over.

``qweight`` int32 [K * bits / 32, N], ``scales`` float16 [G, N], ``qzeros`` int32 [G, N * bits / 32], ``g_idx`` int32
[K] the group of each column. The first layout of the files (``checkpoint_format`` gptq) stores zero points less one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.integers import StoredIntegers, integer_weight
from dfc.compiler.checkpoint.quantisation.module import FLOATS, WORDS, Module, read_floats, read_words
from dfc.compiler.checkpoint.quantisation.weight import Array, QuantisedWeight, unpack_words

_ZERO_POINT_OFFSETS = {"gptq": 1, "gptq_v2": 0}


@dataclass(frozen=True)
class GPTQ:
    """``group_size`` 0 is a whole row; ``reordered``: columns of one group need not stand together."""

    bits: int
    group_size: int
    reordered: bool
    zero_point_offset: int

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a layer, see `Method`; layers that GPTQ leaves alone have a plain weight."""
        if module.is_stored_as("weight", FLOATS) and not module.has("qweight"):
            return None
        rows, columns = module.shape
        bits, group = self.bits, self.group_size or columns
        groups = -(-columns // group)
        weights = module.take("qweight", WORDS, (columns * bits // 32, rows))
        scales = module.take("scales", FLOATS, (groups, rows))
        zeros = module.take("qzeros", WORDS, (groups, rows * bits // 32))
        order = module.take("g_idx", WORDS, (columns,)) if self.reordered else None

        def zero_points() -> Array:
            return (unpack_words(read_words(zeros), bits).T + self.zero_point_offset) & ((1 << bits) - 1)

        stored = StoredIntegers(
            bits=bits,
            group_size=group,
            scale_type=scales.dtype,
            scales=lambda: read_floats(scales).T,
            codes=lambda: unpack_words(read_words(weights).T, bits),
            zero_points=zero_points,
            groups=None if order is None else lambda: read_words(order),
        )
        return integer_weight(module, stored, (weights.file, scales.file, zeros.file))


def read_gptq(fields: Fields) -> GPTQ:
    """Read the config.

    Raises:
        CheckpointError: it says what cannot be built.
    """
    bits = fields.integer("bits")
    if bits not in (4, 8):
        raise fields.error("bits", f"is {bits}; 4 and 8 can be built")
    layout = fields.text("checkpoint_format", "gptq")
    if layout not in _ZERO_POINT_OFFSETS:
        raise fields.error("checkpoint_format", f"is {layout!r}; {' and '.join(_ZERO_POINT_OFFSETS)} can be built")
    _check_dynamic(fields.section("dynamic"))
    group_size = fields.integer("group_size", -1, least=-1)
    return GPTQ(bits, max(group_size, 0), fields.boolean("desc_act", False), _ZERO_POINT_OFFSETS[layout])


def _check_dynamic(rules: Fields) -> None:
    """Check that rules for single layers only leave layers alone, which their tensors show."""
    for name in rules.names:
        if not name.startswith("-:"):
            raise rules.error(name, "gives some layers a quantisation of their own; only '-:' rules can be built")
