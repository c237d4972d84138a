"""DFlash drafters, the first generation (semantics A.1 and A.2)."""

from __future__ import annotations

from pathlib import Path

from dfc.compiler.checkpoint.block_drafter import (
    DFLASH2_FIELDS,
    has_dflash2_fields,
    is_block_drafter,
    open_block_drafter,
    read_block_drafter,
)
from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.checkpoint.spec import DFlashSpec

_DFLASH2_PARTS = ("candidate_selector", "attention_conv", "mlp_conv")


def is_dflash(top: Fields) -> bool:
    """Return whether a config describes a DFlash drafter: no field of a convolution or a selector."""
    return is_block_drafter(top) and not has_dflash2_fields(top)


def load_dflash(directory: Path) -> DFlashSpec:
    """Read and check a drafter checkpoint; only headers of the weight files are read.

    Raises:
        CheckpointError: something in it does not fit, or it has tensors that only DFlash2 has.
    """
    config = open_block_drafter(directory)
    if has_dflash2_fields(config.top):
        name = next(name for name in DFLASH2_FIELDS if name in config.fields)
        raise config.fields.of(name).error(name, "is set, which makes this a DFlash2 drafter, not a DFlash one")
    for name in config.index.names:
        if not set(_DFLASH2_PARTS).isdisjoint(name.split(".")):
            raise CheckpointError(
                f"{directory / 'config.json'}: dflash_config has none of {', '.join(DFLASH2_FIELDS)}, but there is the"
                f" tensor {name}, which only DFlash2 drafters have"
            )
    return read_block_drafter(config)
