"""ModelOpt: FP8 with one scale a tensor, and NVFP4, described in ``hf_quant_config.json`` or in the model's config.

NVFP4: ``weight`` uint8 [N, K / 2] of e2m1, the even column in the low four bits, ``weight_scale`` e4m3 [N, K / 16],
``weight_scale_2`` one float32 for all. FP8: ``weight`` e4m3, ``weight_scale`` one float32. The scales of activations
(``input_scale``) are not used: activations stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.quantisation.float8 import float8_weight
from dfc.compiler.checkpoint.quantisation.module import FLOAT8, FLOATS, OCTETS, Module, viewed
from dfc.compiler.checkpoint.quantisation.patterns import Patterns, read_patterns
from dfc.compiler.checkpoint.quantisation.weight import QuantisedWeight

_GROUP = 16

_ALGORITHMS = ("FP8", "NVFP4")


@dataclass(frozen=True)
class ModelOpt:
    """One algorithm for all layers that are not excluded."""

    algorithm: str
    excluded: Patterns

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a layer, see `Method`."""
        plain = module.is_stored_as("weight", FLOATS) and not module.has("weight_scale")
        if plain or self.excluded.match(module.name):
            return None
        if module.has("pre_quant_scale"):
            raise module.error("has a pre_quant_scale; only NVFP4 and FP8 without one can be built")
        return _nvfp4(module) if self.algorithm == "NVFP4" else float8_weight(module, "weight_scale", module.shape)


def read_modelopt(fields: Fields) -> ModelOpt:
    """Read the section of either file.

    Raises:
        CheckpointError: it says what cannot be built.
    """
    algorithm = fields.text("quant_algo")
    if algorithm not in _ALGORITHMS:
        raise fields.error("quant_algo", f"is {algorithm!r}; {' and '.join(_ALGORITHMS)} can be built")
    if algorithm == "NVFP4":
        fields.require("group_size", _GROUP, _GROUP)
    return ModelOpt(algorithm, read_patterns(fields, "exclude_modules" if "exclude_modules" in fields else "ignore"))


def _nvfp4(module: Module) -> QuantisedWeight:
    rows, columns = module.shape
    if columns % _GROUP:
        raise module.error(f"has {columns} columns, which are not whole groups of {_GROUP}")
    groups = columns // _GROUP
    return QuantisedWeight(
        kind="float4",
        shape=module.shape,
        block_rows=1,
        block_columns=_GROUP,
        values=viewed(module.take("weight", OCTETS, (rows, columns // 2)), (rows, groups, _GROUP // 2)),
        scales=module.take("weight_scale", FLOAT8, (rows, groups)),
        tensor_scale=module.take("weight_scale_2", {"F32": "float32"}, (1,)),
    )
