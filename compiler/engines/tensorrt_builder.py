"""From an engine's graph to its bytes, with TensorRT's or TensorRT-RTX's builder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

from dfc.compiler.engines.backend import EngineOptions
from dfc.compiler.engines.interruptible import run_interruptibly
from dfc.compiler.engines.tensorrt_failure import locate, shorten
from dfc.compiler.engines.tensorrt_progress import Progress, progress_monitor
from dfc.compiler.errors import BuildError
from dfc.plugins.library_log import LibraryLog

if TYPE_CHECKING:
    from engine_library import Builder, IBuilderConfig, INetworkDefinition, IProgressMonitor, Library

Configure: TypeAlias = "Callable[[Library, IBuilderConfig, EngineOptions], None]"
"""Sets what one library alone knows: gets the bindings module, the builder's configuration and the options."""


def build_engine(
    library: Library,
    model: ir.Model,
    name: str,
    options: EngineOptions,
    configure: Configure,
    parser_flags: int = 0,
    log_file: Path | None = None,
    progress: Progress = lambda line: None,
) -> bytes:
    """Return the engine of a graph whose shapes are all static.

    Raises:
        BuildError: the library refuses the graph or cannot build it; names the node and carries the library's log.
    """
    log = LibraryLog(log_file)
    log.add(f"engine {name}")

    def build(abandoned: threading.Event) -> bytes:
        monitor = progress_monitor(library, progress, abandoned)
        return _build(library, model, name, options, configure, parser_flags, log, monitor)

    try:
        return run_interruptibly(build)
    finally:
        # A library that was left behind goes on talking, and the artifact's directory may be gone by then.
        log.close()


def _build(
    library: Library,
    model: ir.Model,
    name: str,
    options: EngineOptions,
    configure: Configure,
    parser_flags: int,
    log: LibraryLog,
    monitor: IProgressMonitor,
) -> bytes:
    logger = log.logger(library)
    builder = library.Builder(logger)
    network = create_network(library, builder)
    parse(library, network, model, name, log, parser_flags)
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    # A row's result must not depend on which fast approximation a shape gets; the states need float32 as it is.
    config.clear_flag(library.BuilderFlag.TF32)
    if options.workspace is not None:
        config.set_memory_pool_limit(library.MemoryPoolType.WORKSPACE, options.workspace)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    configure(library, config, options)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        reason = shorten(log.last_error) or "the library does not say why"
        raise BuildError(
            f"engine {name} cannot be built{locate(log.last_error, log.lines, model)}: {reason}", log.lines
        )
    return bytes(engine)


def create_network(library: Library, builder: Builder) -> INetworkDefinition:
    """Return an empty network whose types are those that the graph says."""
    return builder.create_network(1 << int(library.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def parse(
    library: Library, network: INetworkDefinition, model: ir.Model, name: str, log: LibraryLog, parser_flags: int = 0
) -> None:
    """Fill a network with a graph; `name` is the engine's in messages.

    Raises:
        BuildError: the parser refuses the graph; names the node and carries the library's log.
    """
    parser = library.OnnxParser(network, log.logger(library))
    parser.flags |= parser_flags
    if not parser.parse(ir.serde.serialize_model(model).SerializeToString()):
        error = parser.get_error(0)
        where = f" at node {error.node_name()} ({error.node_operator()})" if error.node_operator() else ""
        raise BuildError(f"engine {name}: the parser refuses the graph{where}: {shorten(error.desc())}", log.lines)
