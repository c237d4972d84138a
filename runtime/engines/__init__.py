"""Loading the engines of an artifact: one file a backend."""

from __future__ import annotations

from collections.abc import Callable

from dfc.artifacts import Artifact
from dfc.runtime.engine import Engine
from dfc.runtime.engines.onnxruntime import load_engine as load_onnxruntime
from dfc.runtime.errors import RunError

LOADERS: dict[str, Callable[[Artifact, str], Engine]] = {"onnxruntime": load_onnxruntime}


def choose_backend(artifact: Artifact) -> str:
    """Return the first backend of the artifact that this runtime loads.

    Raises:
        RunError: there is none.
    """
    for backend in artifact.manifest.backends:
        if backend in LOADERS:
            return backend
    held = ", ".join(artifact.manifest.backends)
    raise RunError(f"{artifact.root} has engines for {held} only, which this installation cannot run")


def load_stage(artifact: Artifact, stage: str, backend: str) -> Engine:
    """Load one stage's engine.

    Raises:
        RunError: the artifact lacks it or the library cannot load it.
    """
    return LOADERS[backend](artifact, stage)
