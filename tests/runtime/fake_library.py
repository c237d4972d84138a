"""A stand-in for the bindings of an engine library."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class FakeSeverity(int):
    """A severity with a name, as the bindings' own are."""

    name = "ERROR"


def fake_library(deserialize: Callable[[bytes], object], version: str = "1.6.1.120") -> Any:
    """Return a library whose runtime deserialises so; what it logs goes to `loggers[-1].log(severity, message)`."""
    loggers: list[Any] = []
    types = SimpleNamespace(FLOAT="float", BF16=1, HALF=2, INT64=3, INT32=4, BOOL=5)
    kinds = "VERSION_MISMATCH UNSUPPORTED_CC OLD_CUDA_DRIVER OLD_CUDA_RUNTIME INSUFFICIENT_GPU_MEMORY MALFORMED_ENGINE"
    diagnostics = {kind: 1 << bit for bit, kind in enumerate(kinds.split())}
    capabilities = dict.fromkeys(("NONE", "CURRENT", "SM75", "SM89", "SM120"))

    def make_runtime(logger: Any) -> Any:
        loggers.append(logger)
        return SimpleNamespace(deserialize_cuda_engine=deserialize, get_engine_validity=lambda data: (2, 0))

    return SimpleNamespace(
        __version__=version,
        loggers=loggers,
        DataType=types,
        TensorIOMode=SimpleNamespace(INPUT="input", OUTPUT="output"),
        ILogger=type("ILogger", (), {"Severity": SimpleNamespace(ERROR=FakeSeverity(1))}),
        Runtime=make_runtime,
        EngineInvalidityDiagnostics=SimpleNamespace(**diagnostics),
        ComputeCapability=SimpleNamespace(__members__=capabilities),
    )
