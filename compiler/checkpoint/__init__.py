"""Reading checkpoints: config and tensor headers to frozen specs, everything checked before any work."""

from dfc.compiler.checkpoint.dflash import is_dflash, load_dflash
from dfc.compiler.checkpoint.dflash2 import is_dflash2, load_dflash2
from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.fits import check_fits
from dfc.compiler.checkpoint.qwen3_5 import load_target
from dfc.compiler.checkpoint.spec import DFlash2Spec, DFlashSpec, TargetSpec, TensorLocation

__all__ = [
    "CheckpointError",
    "DFlash2Spec",
    "DFlashSpec",
    "TargetSpec",
    "TensorLocation",
    "check_fits",
    "is_dflash",
    "is_dflash2",
    "load_dflash",
    "load_dflash2",
    "load_target",
]
