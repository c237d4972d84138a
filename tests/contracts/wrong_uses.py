"""Wrong uses of an engine library: each changes one line of dfc's own code, and each must be found."""

from __future__ import annotations

from dataclasses import dataclass

BUILDER = "compiler/engines/tensorrt_builder.py"
PROGRESS = "compiler/engines/tensorrt_progress.py"
LOG = "plugins/library_log.py"
RUNTIME = "runtime/engines/tensorrt_runtime.py"
RTX_BUILDER = "compiler/engines/tensorrt_rtx.py"
OPERATORS = "compiler/operators.py"
RTX_RUNTIME = "runtime/engines/tensorrt_rtx.py"
KERNEL_CACHE = "runtime/engines/kernel_cache.py"
FULL_BUILDER = "compiler/engines/tensorrt.py"
PLUGINS = "plugins/tensorrt_plugins.py"
CONVOLUTION = "plugins/grouped_conv/plugin.py"
SELECTOR = "plugins/selector/plugin.py"


@dataclass(frozen=True)
class WrongUse:
    """`wrong` in place of the first `right` of a file."""

    what: str
    file: str
    right: str
    wrong: str


WRONG_USES = (
    WrongUse("misspelt builder flag", BUILDER, "BuilderFlag.TF32", "BuilderFlag.TF23"),
    WrongUse("one argument too many", BUILDER, "library.Builder(logger)", "library.Builder(logger, 1)"),
    WrongUse("absent method", BUILDER, "builder.create_network(", "builder.create_network_v2("),
    WrongUse("misspelt creation flag", BUILDER, "CreationFlag.STRONGLY_TYPED", "CreationFlag.STRONG"),
    WrongUse(
        "arguments in the wrong order",
        BUILDER,
        "OnnxParser(network, log.logger(library))",
        "OnnxParser(log.logger(library), network)",
    ),
    WrongUse("one argument too few", BUILDER, "parser.get_error(0)", "parser.get_error()"),
    WrongUse("absent method of an error", BUILDER, "error.node_name()", "error.name()"),
    WrongUse("flag of another enum", BUILDER, "library.MemoryPoolType.WORKSPACE", "library.BuilderFlag.TF32"),
    WrongUse("absent property", BUILDER, "config.builder_optimization_level", "config.optimization_level"),
    WrongUse("build from the wrong things", BUILDER, "network(network, config)", "network(config, network)"),
    WrongUse("absent property of a configuration", BUILDER, "config.progress_monitor", "config.monitor"),
    WrongUse("absent class", PROGRESS, "library.IProgressMonitor", "library.IProgress"),
    WrongUse("absent enum", LOG, "library.ILogger.Severity", "library.ILogger.Level"),
    WrongUse("absent property of an enum", LOG, "severity.name", "severity.label"),
    WrongUse("wrong type of argument", RUNTIME, "library.Runtime(self._logger)", 'library.Runtime("errors")'),
    WrongUse("path for bytes", RUNTIME, "deserialize_cuda_engine(data)", "deserialize_cuda_engine(path)"),
    WrongUse("misspelt data type", RUNTIME, "DataType.BF16", "DataType.BFLOAT16"),
    WrongUse("property of an older version", RUNTIME, "engine.device_memory_size_v2", "engine.device_memory_size"),
    WrongUse("index for a name", RUNTIME, "get_tensor_shape(name)", "get_tensor_shape(0)"),
    WrongUse("method of an older version", RUNTIME, "execute_async_v3(", "execute_async_v2("),
    WrongUse("address without a name", RUNTIME, "set_tensor_address(name, address)", "set_tensor_address(address)"),
    WrongUse("absent property of a layer", OPERATORS, "layer.metadata", "layer.origin"),
    WrongUse("absent property of TensorRT-RTX", RTX_BUILDER, "config.num_compute_capabilities", "config.capabilities"),
    WrongUse("capability without its place", RTX_BUILDER, "(known[name], index)", "(known[name])"),
    WrongUse("absent diagnostic", RTX_RUNTIME, "kinds.UNSUPPORTED_CC", "kinds.UNSUPPORTED_GPU"),
    WrongUse("absent strategy", RTX_RUNTIME, "Strategy.USER_MANAGED", "Strategy.USER"),
    WrongUse(
        "context without configuration", RTX_RUNTIME, "create_execution_context(config)", "create_context(config)"
    ),
    WrongUse("absent cache", KERNEL_CACHE, "config.create_runtime_cache()", "config.create_cache()"),
    WrongUse("text for bytes", KERNEL_CACHE, "deserialize(content)", "deserialize(str(content))"),
    WrongUse("absent parser flag", FULL_BUILDER, "ENABLE_PLUGIN_OVERRIDE", "PLUGIN_OVERRIDE"),
    WrongUse("flag without its enum", FULL_BUILDER, "library.BuilderFlag.DISTRIB", "library.DISTRIB"),
    WrongUse("absent data type of plugins", PLUGINS, "trt.DataType.BF16", "trt.DataType.BFLOAT16"),
    WrongUse("absent launch parameter", PLUGINS, "KernelLaunchParams(grid_x=", "KernelLaunchParams(grid="),
    WrongUse("absent constructor of expressions", PLUGINS, "SymIntExprs.from_tuple", "SymIntExprs.from_list"),
    WrongUse("tactic too many", PLUGINS, '"LINEAR", [1])', '"LINEAR", [1], 2)'),
    WrongUse("absent decorator", CONVOLUTION, "trtp.register(NAME)", "trtp.define(NAME)"),
    WrongUse("absent method of a description", CONVOLUTION, "hidden.like()", "hidden.alike()"),
    WrongUse("type too many", SELECTOR, "TensorDesc(shape, candidate_ids.dtype)", "TensorDesc(shape, None, 2, 3, 4)"),
    WrongUse("implementation without an id", SELECTOR, "trtp.aot_impl(NAME)", "trtp.aot_impl()"),
)
