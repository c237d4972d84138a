"""From a stage graph to what one backend loads: one file a backend."""

from __future__ import annotations

from dfc.compiler.engines import onnxruntime, tensorrt, tensorrt_rtx
from dfc.compiler.engines.backend import Backend

BACKENDS: dict[str, Backend] = {
    "onnxruntime": onnxruntime.BACKEND,
    "tensorrt-rtx": tensorrt_rtx.BACKEND,
    "tensorrt": tensorrt.BACKEND,
}
