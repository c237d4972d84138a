"""Engines on TensorRT-RTX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dfc.artifacts import Artifact
from dfc.plugins.libraries import MissingLibraryError, tensorrt_rtx
from dfc.plugins.user_cache import cache_directory
from dfc.runtime.engine import OpenStage
from dfc.runtime.engines.cuda import CudaDevice
from dfc.runtime.engines.cuda_weights import DeviceWeights
from dfc.runtime.engines.kernel_cache import KernelCache
from dfc.runtime.engines.tensorrt_engine import TensorRTEngine
from dfc.runtime.engines.tensorrt_runtime import TensorRTRuntime
from dfc.runtime.errors import RunError

if TYPE_CHECKING:
    from engine_library import ICudaEngine, IExecutionContext

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

    return TensorRTRuntime(BACKEND, library, device, create_context)
