"""The graph that an onnxruntime session really runs, after onnxruntime has changed it."""

from __future__ import annotations

from pathlib import Path

from dfc.artifacts import Artifact
from dfc.runtime.engines.onnxruntime import library, open_session, session_options


def write_session_graph(artifact: Artifact, engine: str, file: Path, *, optimized: bool = True) -> None:
    """Write the graph of one engine's session as an ONNX file, large tensors in ``<file>.data`` beside it.

    Without `optimized` it differs from the engine only in what onnxruntime has no kernel for and takes apart.

    Raises:
        RunError: onnxruntime is not installed or cannot load the engine.
        ArtifactError: the engine is damaged, or reads weights outside the artifact's files.
    """
    options = session_options(artifact)
    levels = library().GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(file)
    prefix = "session.optimized_model_external_initializers_"
    options.add_session_config_entry(f"{prefix}file_name", f"{file.name}.data")
    options.add_session_config_entry(f"{prefix}min_size_in_bytes", "4096")
    open_session(artifact, engine, options)
