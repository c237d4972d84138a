"""FP8 with one scale a block or a tensor (``quant_method`` fp8), as Qwen publishes it.

``weight`` is e4m3 [N, K], ``weight_scale_inv`` [ceil(N / 128), ceil(K / 128)] multiplies its blocks; without
``weight_block_size`` one number (``weight_scale`` in some) multiplies all.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.module import FLOAT8, FLOATS, Module
from dfc.compiler.checkpoint.quantisation.patterns import Patterns, read_patterns
from dfc.compiler.checkpoint.quantisation.weight import QuantisedWeight


def read_float8(fields: Fields) -> Float8:
    """Read the config.

    Raises:
        CheckpointError: it says what cannot be built.
    """
    fields.require("fmt", "e4m3", "e4m3")
    if fields.text("activation_scheme", "dynamic") not in ("dynamic", "static"):
        raise fields.error("activation_scheme", "is neither 'dynamic' nor 'static'")
    block = fields.integers("weight_block_size", ())
    if block and (len(block) != 2 or min(block) < 1):
        raise fields.error("weight_block_size", "is not two numbers of rows and columns")
    return Float8((block[0], block[1]) if block else None, read_patterns(fields, "modules_to_not_convert"))


@dataclass(frozen=True)
class Float8:
    """Blocks of [rows, columns], None for one scale a tensor."""

    block: tuple[int, int] | None
    excluded: Patterns

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a layer, see `Method`."""
        if self.excluded.match(module.name) or _is_plain(module):
            return None
        if self.block is not None:
            return float8_weight(module, "weight_scale_inv", self.block)
        return float8_weight(module, scale_name(module, "weight_scale", "weight_scale_inv"), module.shape)


def float8_weight(module: Module, scale: str, block: tuple[int, int]) -> QuantisedWeight:
    """Return an e4m3 matrix with one scale for every block of rows and columns.

    Raises:
        CheckpointError: its tensors do not fit.
    """
    rows, columns = module.shape
    block_rows, block_columns = min(block[0], rows), min(block[1], columns)
    scales = (-(-rows // block_rows), -(-columns // block_columns))
    return QuantisedWeight(
        kind="float8",
        shape=module.shape,
        block_rows=block_rows,
        block_columns=block_columns,
        values=module.take("weight", FLOAT8, module.shape),
        scales=module.take(scale, FLOATS, scales),
    )


def scale_name(module: Module, *names: str) -> str:
    """Return the first of some tensors that is there, the first of all when none is."""
    return next((name for name in names if module.has(name)), names[0])


def _is_plain(module: Module) -> bool:
    return module.is_stored_as("weight", FLOATS) and not any(
        module.has(name) for name in ("weight_scale", "weight_scale_inv")
    )
