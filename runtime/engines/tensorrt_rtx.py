"""Engines on TensorRT-RTX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dfc.artifacts import Artifact
from dfc.plugins.libraries import MissingLibraryError, named_capabilities, tensorrt_rtx
from dfc.plugins.user_cache import cache_directory
from dfc.runtime.engine import OpenStage
from dfc.runtime.engines.cuda import CudaDevice
from dfc.runtime.engines.cuda_weights import DeviceWeights
from dfc.runtime.engines.kernel_cache import KernelCache
from dfc.runtime.engines.refusals import DAMAGED, DRIVER, GPU, MEMORY, VERSION
from dfc.runtime.engines.tensorrt_engine import TensorRTEngine
from dfc.runtime.engines.tensorrt_runtime import TensorRTRuntime
from dfc.runtime.errors import RunError

if TYPE_CHECKING:
    from engine_library import ICudaEngine, IExecutionContext, Library, Runtime

BACKEND = "tensorrt-rtx"


def open_engines(artifact: Artifact) -> OpenStage:
    """Return what loads this artifact's stages on the GPU.

    Raises:
        RunError: TensorRT-RTX, cuda-core or a GPU is missing.
    """
    runtime = open_runtime(CudaDevice())
    weights = DeviceWeights(runtime.device, artifact)
    return lambda stage: TensorRTEngine(artifact, stage, runtime, weights)


def open_runtime(device: CudaDevice) -> TensorRTRuntime:
    """Return the library on a GPU.

    Raises:
        RunError: TensorRT-RTX is missing.
    """
    try:
        library = tensorrt_rtx()
    except MissingLibraryError as error:
        raise RunError(str(error)) from error
    kernels = KernelCache(cache_directory(BACKEND) / f"{library.__version__}-{device.capability}.bin")

    def create_context(engine: ICudaEngine) -> IExecutionContext:
        config = engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(library.ExecutionContextAllocationStrategy.USER_MANAGED)
        kernels.attach(config)
        context = engine.create_execution_context(config)
        kernels.save()
        return context

    def diagnose(runtime: Runtime, data: bytes) -> frozenset[str]:
        return find_wrong(library, runtime, data)

    return TensorRTRuntime(BACKEND, library, device, create_context, diagnose, named_capabilities(library))


def find_wrong(library: Library, runtime: Runtime, data: bytes) -> frozenset[str]:
    """Return what the library finds wrong with an engine, from its header; nothing where it cannot tell."""
    kinds = library.EngineInvalidityDiagnostics
    meanings = {
        kinds.VERSION_MISMATCH: VERSION,
        kinds.UNSUPPORTED_CC: GPU,
        kinds.OLD_CUDA_DRIVER: DRIVER,
        kinds.OLD_CUDA_RUNTIME: DRIVER,
        kinds.INSUFFICIENT_GPU_MEMORY: MEMORY,
        kinds.MALFORMED_ENGINE: DAMAGED,
    }
    _, found = runtime.get_engine_validity(data)
    return frozenset(meaning for kind, meaning in meanings.items() if int(found) & int(kind))
