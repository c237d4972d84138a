"""From a stage graph to what one backend loads: one file a backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dfc.compiler.engines import onnxruntime
from dfc.compiler.export.stage import StageGraph


@dataclass(frozen=True)
class Backend:
    """How one backend's engines are made and what reads them."""

    file_name: str
    library: str
    library_version: str
    compile_stage: Callable[[StageGraph], bytes]


BACKENDS = {"onnxruntime": Backend("model.onnx", "onnxruntime", ">=1.32", onnxruntime.compile_stage)}
