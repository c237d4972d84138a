"""What a backend is to the compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dfc.artifacts import Precision
from dfc.compiler.export.stage import StageGraph
from dfc.compiler.passes.tensorrt.weight_inputs import WeightInput

Report = Callable[[str], None]


@dataclass(frozen=True)
class EngineOptions:
    """What the user asks of a backend's engines; None leaves it to the library.

    ``compute_capabilities`` such as "8.9" name the GPUs to build for, ``workspace`` is bytes of scratch memory that the
    builder may plan with, ``optimization_level`` 0 to 5 trades build time for speed.
    """

    compute_capabilities: tuple[str, ...] = ()
    workspace: int | None = None
    optimization_level: int | None = None


@dataclass(frozen=True)
class EngineRequest:
    """What engines of every stage of an artifact must hold: rows of a round and of a prompt chunk, and cache rows.

    What a library says while it builds goes to the end of ``log``, how far it is to ``progress``.
    """

    round_rows: int
    capacity: int
    options: EngineOptions
    log: Path | None = None
    progress: Report = lambda line: None


@dataclass(frozen=True)
class CompiledEngine:
    """One file a backend loads.

    ``sizes`` are the static sizes it was built for, none where it takes any; ``weights`` what it reads as inputs.
    """

    file_name: str
    data: bytes
    sizes: Mapping[str, int] = field(default_factory=dict)
    weights: tuple[WeightInput, ...] = ()


@dataclass(frozen=True)
class Backend:
    """How one backend's engines are made and what reads them.

    A backend of static shapes pads: its prompt chunks have ``prompt_rows`` rows whatever the prompt has, 0 for a
    backend that takes calls of any size. ``machine`` says what of this machine goes into an engine.
    """

    library: str
    library_version: Callable[[], str]
    precision: Precision
    compile_stage: Callable[[StageGraph, EngineRequest, Report], Iterator[CompiledEngine]]
    prompt_rows: int = 0
    supports: frozenset[str] = frozenset()
    machine: Callable[[], str] = lambda: ""
