"""Compiled stages of earlier builds, found again by the content of everything that went into them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import onnx_ir as ir
from pydantic import TypeAdapter, ValidationError

from dfc import plugins
from dfc.artifacts import Engine, Weight
from dfc.compiler.engines.backend import Backend, EngineRequest
from dfc.compiler.engines.shapes import engine_shapes
from dfc.compiler.export.stage import StageGraph
from dfc.plugins.user_cache import write_cache

TOOLS = ("numpy", "onnx", "onnx-ir", "onnxscript")

_SOURCES = (".py", ".cu", ".cuh")
_ENGINES = TypeAdapter(tuple[Engine, ...])
_WEIGHTS = TypeAdapter(dict[str, Weight])


@dataclass(frozen=True)
class CompiledStage:
    """A stage's engines as the manifest lists them, the weights they take as inputs, and the files by engine path."""

    engines: tuple[Engine, ...]
    weights: Mapping[str, Weight]
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class StageCache:
    """One file a stage in `directory`: a line of JSON, then the engines one behind the other."""

    directory: Path

    def recall(self, key: str) -> CompiledStage | None:
        """Return what was kept under a key, None when nothing was or it is damaged."""
        path = self.directory / key
        try:
            header, _, data = path.read_bytes().partition(b"\n")
            entry = json.loads(header)
            if entry["sha256"] != hashlib.sha256(data).hexdigest():
                return None
            engines = _ENGINES.validate_python(entry["engines"])
            weights = _WEIGHTS.validate_python(entry["weights"])
            sizes = [int(size) for size in entry["sizes"]]
        except (OSError, ValueError, TypeError, KeyError, RecursionError, ValidationError):
            return None
        files, start = {}, 0
        for engine, size in zip(engines, sizes, strict=True):
            files[engine.path] = data[start : start + size]
            start += size
        # Pruning removes what has been used the longest time ago.
        with contextlib.suppress(OSError):
            os.utime(path)
        return CompiledStage(engines, weights, files)

    def keep(self, key: str, stage: CompiledStage) -> None:
        """Keep a stage; where the directory cannot be written, the next build compiles it again."""
        data = [stage.files[engine.path] for engine in stage.engines]
        entry = {
            "sha256": hashlib.sha256(b"".join(data)).hexdigest(),
            "engines": _ENGINES.dump_python(stage.engines, mode="json"),
            "weights": _WEIGHTS.dump_python(dict(stage.weights), mode="json"),
            "sizes": list(map(len, data)),
        }
        write_cache(self.directory / key, b"\n".join([json.dumps(entry).encode(), b"".join(data)]))


def stage_key(stage: StageGraph, backend: Backend, backend_name: str, request: EngineRequest) -> str:
    """Return the digest of everything that a stage's engines are made from.

    The graph holds the place of each weight and not its content, and so does every engine.
    """
    shapes = [asdict(shape) for shape in engine_shapes(stage, request)] if backend.prompt_rows else []
    facts = {
        "stage": stage.name,
        "component": stage.component,
        "tensors": [tensor.model_dump(mode="json") for tensor in (*stage.inputs, *stage.outputs)],
        "rows": [stage.round_rows, stage.draft_tokens],
        "backend": [backend_name, backend.library, backend.library_version(), backend.precision],
        "machine": backend.machine(),
        "shapes": shapes,
        "options": asdict(request.options),
        "tools": {name: version(name) for name in TOOLS},
        "sources": _sources_digest(),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    digest.update(ir.serde.serialize_model(stage.model).SerializeToString(deterministic=True))
    return digest.hexdigest()


@functools.cache
def _sources_digest() -> str:
    """Return the digest of dfc's own code that makes engines: its version stays the same while it is worked on."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent
    for folder in (root, Path(plugins.__path__[0]).resolve()):
        for path in sorted(folder.rglob("*")):
            if path.suffix in _SOURCES:
                digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
