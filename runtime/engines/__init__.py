"""Loading the engines of an artifact: one file a backend."""

from __future__ import annotations

from collections.abc import Callable

from dfc.artifacts import Artifact
from dfc.runtime.engine import Engine, OpenStage
from dfc.runtime.engines import onnxruntime, tensorrt_rtx
from dfc.runtime.errors import RunError

BACKENDS: dict[str, Callable[[Artifact], OpenStage]] = {
    "onnxruntime": onnxruntime.open_engines,
    "tensorrt-rtx": tensorrt_rtx.open_engines,
}


def choose_backend(artifact: Artifact) -> str:
    """Return the first backend of the artifact that this runtime loads.

    Raises:
        RunError: there is none.
    """
    for backend in artifact.manifest.backends:
        if backend in BACKENDS:
            return backend
    held = ", ".join(artifact.manifest.backends)
    raise RunError(f"{artifact.root} has engines for {held} only, which this installation cannot run")


def open_engines(artifact: Artifact, backend: str) -> OpenStage:
    """Return what loads the artifact's stages on a backend; the engines it loads may share buffers.

    Raises:
        RunError: the backend's library or its hardware is missing.
    """
    return BACKENDS[backend](artifact)


def load_stage(artifact: Artifact, stage: str, backend: str) -> Engine:
    """Load one stage's engine, on its own.

    Raises:
        RunError: the artifact lacks it or the library cannot load it.
    """
    return open_engines(artifact, backend)(stage)
