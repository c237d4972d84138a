"""Reading checkpoints: config and tensor headers to frozen specs, everything checked before any work."""

from dfc.compiler.checkpoint.dflash2 import load_dflash2
from dfc.compiler.checkpoint.errors import CheckpointError
from dfc.compiler.checkpoint.fits import check_fits
from dfc.compiler.checkpoint.qwen3_5 import load_target
from dfc.compiler.checkpoint.spec import DFlash2Spec, TargetSpec, TensorLocation

__all__ = [
    "CheckpointError",
    "DFlash2Spec",
    "TargetSpec",
    "TensorLocation",
    "check_fits",
    "load_dflash2",
    "load_target",
]
