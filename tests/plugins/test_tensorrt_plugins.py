"""The TensorRT faces: registered with TensorRT's own bindings, built for the known checkpoints' geometries."""

# TensorRT reads the annotations of the functions below as objects.
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir
import pytest
from onnxscript import GraphBuilder

from dfc.compiler.export import ops
from dfc.plugins.bodies import rules
from dfc.plugins.compilation import compile_kernel
from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.kernel import GeometryError
from dfc.plugins.selector.launch import SelectorGeometry
from dfc.plugins.top_candidates.launch import TopCandidatesGeometry
from tests.plugins.tensorrt_bindings import import_tensorrt
from tests.plugins.tensorrt_build import TensorType, build_plugin

CAPABILITY = "9.0"
BFLOAT16, FLOAT, INT64, HALF = "BF16", "FLOAT", "INT64", "HALF"


@dataclass(frozen=True)
class Checkpoint:
    """Sizes of a published DFlash2 drafter (semantics C); all have 2 taps, groups of 16, rank 256 and 16 candidates."""

    name: str
    hidden_size: int
    block_size: int
    vocab_size: int


CHECKPOINTS = (
    Checkpoint("Qwen3.8-27B-DFlash2", 5120, 8, 248320),
    Checkpoint("Muse-Glimmer-30B-DFlash2", 6656, 16, 202048),
    Checkpoint("GLM-5.3-DFlash2", 6144, 8, 154880),
    Checkpoint("GLM-5.3-Flash-DFlash2", 4096, 8, 154880),
)
TAPS, GROUP_SIZE, RANK, CANDIDATES = 2, 16, 256, 16

every_checkpoint = pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda checkpoint: checkpoint.name)
every_batch = pytest.mark.parametrize("batch", [1, 3, 32])


# One worker registers, and compiles each kernel once.
pytestmark = pytest.mark.xdist_group("tensorrt")


@pytest.fixture(scope="session")
def tensorrt(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """TensorRT with the plugins registered."""
    import_tensorrt(tmp_path_factory.mktemp("tensorrt"))
    import tensorrt

    from dfc.plugins.tensorrt_plugins import register_plugins

    register_plugins(CAPABILITY)
    module: ModuleType = tensorrt
    return module


@pytest.fixture(autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's cache of kernels out of the tests; one compilation serves all tests of a run."""
    path = tmp_path_factory.getbasetemp() / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


def convolution_inputs(width: int, batch: int, block: int, dtypes: str | tuple[str, ...]) -> list[TensorType]:
    """Inputs of the convolution with `batch` and `block` left open: hidden, coefficients, base and maybe residual."""
    rows = TensorType("", (batch, block, width), dynamic=(0, 1))
    coefficients = replace(rows, shape=(batch, block, 2 * TAPS * width // GROUP_SIZE))
    inputs = (rows, coefficients, TensorType("", (2, TAPS, width)), rows)
    named = (dtypes,) * 3 if isinstance(dtypes, str) else dtypes
    return [replace(tensor, dtype=dtype) for tensor, dtype in zip(inputs, named, strict=False)]


def selector_inputs(vocab_size: int, batch: int, slots: int, sampled: bool) -> list[TensorType]:
    """Inputs of the selector with `batch` and `slots` left open."""
    codebook = TensorType(BFLOAT16, (vocab_size, RANK))
    inputs = [
        TensorType(INT64, (batch, slots, CANDIDATES), dynamic=(0, 1)),
        TensorType(FLOAT, (batch, slots, CANDIDATES), dynamic=(0, 1)),
        TensorType(FLOAT, (batch, slots, RANK), dynamic=(0, 1)),
        codebook,
        codebook,
        TensorType(INT64, (batch,), dynamic=(0,)),
    ]
    if sampled:
        inputs += [TensorType(FLOAT, (batch,), dynamic=(0,)), TensorType(FLOAT, (batch, slots), dynamic=(0, 1))]
    return inputs


@every_checkpoint
@every_batch
@pytest.mark.parametrize("side", [0, 1])
def test_convolution(
    tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint, batch: int, side: int
) -> None:
    width, block = checkpoint.hidden_size, checkpoint.block_size
    geometry = GroupedConvGeometry(width, TAPS, GROUP_SIZE, side, "bfloat16", "bfloat16", "bfloat16")
    inputs = convolution_inputs(width, batch, block, BFLOAT16)
    built = build_plugin(monkeypatch, "GroupedConv", {"side": side, "taps": TAPS, "group_size": GROUP_SIZE}, inputs)
    assert built.output_dtypes == (BFLOAT16,)
    assert built.output_shapes == ((batch, block, width),)
    assert_launches_as_the_driver_test(built, geometry, geometry.launch(batch, block), outputs=1, inputs=3)


@every_checkpoint
@pytest.mark.parametrize("residual", [BFLOAT16, FLOAT])
def test_convolution_with_a_residual(
    tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint, residual: str
) -> None:
    width, block = checkpoint.hidden_size, checkpoint.block_size
    name = {BFLOAT16: "bfloat16", FLOAT: "float32"}[residual]
    geometry = GroupedConvGeometry(width, TAPS, GROUP_SIZE, 1, "bfloat16", "bfloat16", "bfloat16", name)
    inputs = convolution_inputs(width, 2, block, (BFLOAT16, BFLOAT16, BFLOAT16, residual))
    built = build_plugin(monkeypatch, "GroupedConvAdd", {"side": 1, "taps": TAPS, "group_size": GROUP_SIZE}, inputs)
    # The sum belongs to the residual stream and has its dtype.
    assert built.output_dtypes == (residual,)
    assert_launches_as_the_driver_test(built, geometry, geometry.launch(2, block), outputs=1, inputs=4)


@every_checkpoint
@every_batch
@pytest.mark.parametrize("sampled", [False, True])
def test_selector(
    tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint, batch: int, sampled: bool
) -> None:
    slots = checkpoint.block_size - 1
    geometry = SelectorGeometry(CANDIDATES, RANK, slots, sampled, "int64", "float32", "float32", "bfloat16")
    inputs = selector_inputs(checkpoint.vocab_size, batch, slots, sampled)
    name = "SampledCandidateSelector" if sampled else "CandidateSelector"
    built = build_plugin(monkeypatch, name, {"max_slots": slots}, inputs)
    shapes = ((batch, slots), (batch, slots, CANDIDATES))
    assert built.output_dtypes == (INT64, FLOAT)[: 1 + sampled]
    assert built.output_shapes == shapes[: 1 + sampled]
    launch = geometry.launch(batch, slots)
    assert_launches_as_the_driver_test(built, geometry, launch, inputs=len(inputs), outputs=1 + sampled)


@every_checkpoint
@every_batch
@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT])
def test_top_candidates(
    tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint, batch: int, dtype: str
) -> None:
    slots, width, vocab_size = checkpoint.block_size - 1, checkpoint.vocab_size, checkpoint.vocab_size - 3
    geometry = TopCandidatesGeometry(CANDIDATES, width, vocab_size, {BFLOAT16: "bfloat16", FLOAT: "float32"}[dtype])
    attributes = {"k": CANDIDATES, "vocab_size": vocab_size}
    built = build_plugin(
        monkeypatch, "TopCandidates", attributes, [TensorType(dtype, (batch, slots, width), dynamic=(0, 1))]
    )
    assert built.output_dtypes == (dtype, INT64)
    assert built.output_shapes == ((batch, slots, CANDIDATES),) * 2
    assert_launches_as_the_driver_test(built, geometry, geometry.launch(batch, slots), inputs=1, outputs=2)


def assert_launches_as_the_driver_test(built: Any, geometry: Any, launch: Any, inputs: int, outputs: int) -> None:
    """Compare what TensorRT evaluates with what tests launch through the CUDA driver."""
    compiled = compile_kernel(geometry.kernel(), CAPABILITY)
    assert (built.grid, built.block) == ((launch.grid, 1, 1), (launch.threads, 1, 1))
    assert built.shared_memory == 0
    assert built.extra_arguments == launch.extra_arguments
    assert built.kernel_name == compiled.name
    assert hashlib.sha256(built.ptx.encode()).hexdigest() == compiled.ptx_sha256
    assert built.ptx_parameters == ("u64",) * inputs + ("u32",) * len(launch.extra_arguments) + ("u64",) * outputs


def test_a_dtype_that_no_kernel_reads_is_refused(tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = {"side": 0, "taps": TAPS, "group_size": GROUP_SIZE}
    with pytest.raises(GeometryError, match=r"kernels do not read DataType\.HALF"):
        build_plugin(monkeypatch, "GroupedConv", attributes, convolution_inputs(64, 1, 8, HALF))


def test_an_open_dimension_that_the_kernel_needs_is_refused(
    tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, *others = convolution_inputs(64, 1, 8, FLOAT)
    attributes = {"side": 0, "taps": TAPS, "group_size": GROUP_SIZE}
    with pytest.raises(GeometryError, match="axis 2 of input hidden must have a fixed size"):
        build_plugin(monkeypatch, "GroupedConv", attributes, [replace(hidden, dynamic=(0, 1, 2)), *others])


def test_nodes_of_the_stage_graphs_find_their_plugin(tensorrt: ModuleType) -> None:
    from dfc.plugins.tensorrt_plugins import PLUGIN_NAMES

    assert {operator for operator, _ in PLUGIN_NAMES} == {operator for _, operator in rules()}
    op = GraphBuilder(ir.Graph((), (), nodes=(), opset_imports={"": 24}, name="nodes")).op
    tensors = [ir.val(f"input_{index}", ir.DataType.FLOAT) for index in range(6)]
    nodes = [
        ops.grouped_convolution(op, *tensors[:3], side=0, taps=2, group_size=16).producer(),
        ops.grouped_convolution(op, *tensors[:4], side=1, taps=2, group_size=16).producer(),
        ops.candidate_selector(op, *tensors, max_slots=7).producer(),
        ops.top_candidates(op, tensors[0], k=16, vocab_size=100)[0].producer(),
    ]
    for node in nodes:
        assert node is not None
        plugin = PLUGIN_NAMES[node.op_type, len(node.inputs)]
        creator = tensorrt.get_plugin_registry().get_creator(plugin, "1", node.domain)
        assert creator is not None
        assert {field.name for field in creator.field_names} == set(node.attributes)


def test_a_second_registration_is_refused(tensorrt: ModuleType) -> None:
    from dfc.plugins.tensorrt_plugins import register_plugins

    with pytest.raises(ValueError, match="GroupedConv"):
        register_plugins("8.9")


class TestWrongSignatures:
    """What TensorRT itself refuses, so that a plugin that passes is known to have been looked at."""

    def test_description_without_a_type(self, tensorrt: ModuleType) -> None:
        import tensorrt.plugin as trtp

        def describe(hidden: trtp.TensorDesc, taps) -> trtp.TensorDesc:  # type: ignore[no-untyped-def]
            return hidden.like()

        with pytest.raises(ValueError, match="does not have a type annotation"):
            trtp.register("dfc_test::Untyped")(describe)

    def test_description_with_postponed_annotations(self, tensorrt: ModuleType) -> None:
        import tensorrt.plugin as trtp

        def describe(hidden: "trtp.TensorDesc") -> "trtp.TensorDesc":
            return hidden.like()

        with pytest.raises(ValueError, match="should come first"):
            trtp.register("dfc_test::Postponed")(describe)

    @pytest.mark.parametrize("missing", ["coefficients", "outputs", "tactic"])
    def test_implementation_without_an_argument(self, tensorrt: ModuleType, missing: str) -> None:
        import tensorrt.plugin as trtp

        from dfc.plugins.tensorrt_plugins import Implementation

        names = ("hidden", "coefficients", "base", "side", "taps", "group_size", "outputs", "tactic")
        definition = f"def implement({', '.join(name for name in names if name != missing)}) -> Implementation: ..."
        scope: dict[str, Any] = {"Implementation": Implementation}
        exec(definition, scope)
        # A plugin of its own: TensorRT would otherwise put the wrong function in place of the right one.
        plugin = f"dfc_test::Without_{missing}"

        def describe(
            hidden: trtp.TensorDesc,
            coefficients: trtp.TensorDesc,
            base: trtp.TensorDesc,
            side: int,
            taps: int,
            group_size: int,
        ) -> trtp.TensorDesc:
            return hidden.like()

        trtp.register(plugin)(describe)
        with pytest.raises(ValueError, match="does not match the expected input arg schema"):
            trtp.aot_impl(plugin)(scope["implement"])

    def test_implementation_that_returns_something_else(self, tensorrt: ModuleType) -> None:
        import tensorrt.plugin as trtp

        def describe(hidden: trtp.TensorDesc) -> trtp.TensorDesc:
            return hidden.like()

        def implement(hidden: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc], tactic: int) -> tuple[str, str]:
            return "", ""

        trtp.register("dfc_test::Returns")(describe)
        with pytest.raises(ValueError, match="Return annotation"):
            trtp.aot_impl("dfc_test::Returns")(implement)
