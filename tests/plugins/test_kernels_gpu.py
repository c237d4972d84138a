"""The kernels on a GPU, launched through the driver: goldens, other geometries, one rounding."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from dfc.plugins.grouped_conv.launch import GroupedConvGeometry
from dfc.plugins.selector.launch import SelectorGeometry
from tests.paths import GOLDEN
from tests.plugins.checks import check_convolution, check_walk
from tests.plugins.driver import TORCH_DTYPES, LoadedKernel
from tests.plugins.geometries import CHECKPOINTS, convolutions, selectors

pytestmark = pytest.mark.gpu

CASES = json.loads((GOLDEN / "ops.json").read_text())
CONVOLUTIONS = [case for case in CASES if case["op"] == "grouped_conv"]
SELECTORS = [case for case in CASES if case["op"] == "selector"]
FLOATS = ("float32", "float32", "float32")


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in load_file(GOLDEN / "ops.safetensors").items()}


def convolve(
    geometry: GroupedConvGeometry,
    hidden: torch.Tensor,
    coefficients: torch.Tensor,
    base: torch.Tensor,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    batch, block, _ = hidden.shape
    inputs = [tensor for tensor in (hidden, coefficients, base, residual) if tensor is not None]
    outputs = [(hidden.shape, geometry.output_dtype)]
    return LoadedKernel(geometry.kernel()).run(geometry.launch(batch, block), inputs, outputs)[0]


def select(
    geometry: SelectorGeometry,
    inputs: dict[str, torch.Tensor],
    temperature: torch.Tensor | None = None,
    uniforms: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    shape = inputs["candidate_ids"].shape
    arguments = [tensor for tensor in (*inputs.values(), temperature, uniforms) if tensor is not None]
    outputs = [(shape[:2], geometry.id_dtype), (shape, "float32")][: 2 if geometry.sampled else 1]
    tokens, *q = LoadedKernel(geometry.kernel()).run(geometry.launch(shape[0], shape[1]), arguments, outputs)
    return tokens, q[0] if q else None


def draw(generator: torch.Generator, *shape: int, dtype: str = "float32") -> torch.Tensor:
    return torch.randn(shape, generator=generator, device="cuda").to(TORCH_DTYPES[dtype])


def draw_selector_inputs(
    generator: torch.Generator, geometry: SelectorGeometry, batch: int, slots: int, vocabulary: int
) -> dict[str, torch.Tensor]:
    def draw_tokens(*shape: int) -> torch.Tensor:
        return torch.randint(0, vocabulary, shape, generator=generator, device="cuda")

    # Evenly spaced from anywhere: distinct, and in no order.
    spacing = vocabulary // geometry.candidates
    ids = (draw_tokens(batch, slots, 1) + spacing * torch.arange(geometry.candidates, device="cuda")) % vocabulary
    anchor = draw_tokens(batch)
    projected = draw(generator, batch, slots, geometry.rank) / geometry.rank**0.5
    return {
        "candidate_ids": ids.to(TORCH_DTYPES[geometry.id_dtype]),
        "candidate_logits": draw(generator, batch, slots, geometry.candidates, dtype=geometry.logit_dtype),
        "projected": projected.to(TORCH_DTYPES[geometry.projected_dtype]),
        "predecessor_codebook": draw(generator, vocabulary, geometry.rank, dtype=geometry.codebook_dtype),
        "successor_codebook": draw(generator, vocabulary, geometry.rank, dtype=geometry.codebook_dtype),
        "anchor": anchor.to(TORCH_DTYPES[geometry.id_dtype]),
    }


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"conv{case['case']}")
def test_convolution_goldens(golden: dict[str, torch.Tensor], case: dict[str, int]) -> None:
    def value(name: str) -> torch.Tensor:
        return golden[f"conv{case['case']}.{name}"]

    x, base = value("x"), value("base_kernel")
    coefficients = (x.double() @ value("kernel_projection").double().T).float()
    sizes = (case["hidden"], case["taps"], case["group"])
    prepared = convolve(GroupedConvGeometry(*sizes, 0, *FLOATS), x, coefficients, base, None)
    torch.testing.assert_close(prepared, value("prepared"), rtol=1e-5, atol=1e-5)
    output = value("sublayer_output")
    finished = convolve(GroupedConvGeometry(*sizes, 1, *FLOATS), output, coefficients, base, None)
    torch.testing.assert_close(finished, value("finished"), rtol=1e-5, atol=1e-5)
    added = convolve(GroupedConvGeometry(*sizes, 1, *FLOATS, "float32"), output, coefficients, base, x)
    torch.testing.assert_close(added, value("finished") + x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_convolutions_of_the_checkpoints(name: str, batch: int) -> None:
    width, block = CHECKPOINTS[name]
    generator = torch.Generator(device="cuda").manual_seed(batch)
    for geometry in convolutions(width):
        check_random_convolution(generator, geometry, batch, block)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 5),
    block=st.integers(1, 32),
    groups=st.integers(1, 40),
    group_size=st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 24, 64]),
    taps=st.integers(1, 8),
    side=st.integers(0, 1),
    dtypes=st.tuples(*[st.sampled_from(["float32", "bfloat16"])] * 3),
    residual=st.sampled_from([None, "float32", "bfloat16"]),
    seed=st.integers(0, 2**31),
)
def test_convolution_geometries(
    batch: int,
    block: int,
    groups: int,
    group_size: int,
    taps: int,
    side: int,
    dtypes: tuple[str, str, str],
    residual: str | None,
    seed: int,
) -> None:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    geometry = GroupedConvGeometry(groups * group_size, taps, group_size, side, *dtypes, residual)
    check_random_convolution(generator, geometry, batch, block)


def check_random_convolution(generator: torch.Generator, geometry: GroupedConvGeometry, batch: int, block: int) -> None:
    width, taps, groups = geometry.width, geometry.taps, geometry.width // geometry.group_size
    hidden = draw(generator, batch, block, width, dtype=geometry.hidden_dtype)
    coefficients = draw(generator, batch, block, 2 * taps * groups, dtype=geometry.coefficient_dtype)
    base = draw(generator, 2, taps, width, dtype=geometry.base_dtype)
    residual = None
    if geometry.residual_dtype is not None:
        residual = draw(generator, batch, block, width, dtype=geometry.residual_dtype)
    actual = convolve(geometry, hidden, coefficients, base, residual)
    check_convolution(actual, hidden, coefficients, base, residual, geometry.side, taps, geometry.group_size)


@pytest.mark.parametrize("case", SELECTORS, ids=lambda case: f"selector{case['case']}")
def test_selector_goldens(golden: dict[str, torch.Tensor], case: dict[str, int]) -> None:
    def value(name: str) -> torch.Tensor:
        return golden[f"selector{case['case']}.{name}"]

    inputs = {
        "candidate_ids": value("candidate_ids"),
        "candidate_logits": value("unary_logits"),
        "projected": (value("hidden").double() @ value("hidden_projection").double().T).float(),
        "predecessor_codebook": value("predecessor_codebook"),
        "successor_codebook": value("successor_codebook"),
        "anchor": value("anchor"),
    }
    geometry = SelectorGeometry(case["top_k"], case["rank"], case["slots"], True, "int64", *FLOATS)
    tokens, q = select(geometry, inputs, value("temperatures"), value("uniforms"))
    assert torch.equal(tokens, value("sampled_tokens"))
    torch.testing.assert_close(q, value("sampled_q"), rtol=1e-5, atol=1e-5)
    tokens, q = select(geometry, inputs, torch.zeros_like(value("temperatures")), value("uniforms"))
    assert torch.equal(tokens, value("greedy_tokens"))
    assert q is not None
    assert torch.equal(q.amax(-1), torch.ones_like(q[..., 0]))
    assert torch.equal(q.sum(-1), torch.ones_like(q[..., 0]))
    greedy = SelectorGeometry(case["top_k"], case["rank"], 31, False, "int64", *FLOATS)
    tokens, _ = select(greedy, inputs)
    assert torch.equal(tokens, value("greedy_tokens"))


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("batch", [1, 32])
def test_selectors_of_the_checkpoints(name: str, batch: int) -> None:
    block = CHECKPOINTS[name][1]
    generator = torch.Generator(device="cuda").manual_seed(batch)
    for geometry in selectors(block):
        check_random_walk(generator, geometry, batch, block - 1, 248320)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 6),
    slots=st.integers(1, 31),
    spare_slots=st.integers(0, 30),
    candidates=st.integers(1, 32),
    rank=st.one_of(st.sampled_from([64, 256, 512]), st.integers(1, 512)),
    sampled=st.booleans(),
    ids=st.sampled_from(["int32", "int64"]),
    dtypes=st.tuples(*[st.sampled_from(["float32", "bfloat16"])] * 3),
    seed=st.integers(0, 2**31),
)
def test_selector_geometries(
    batch: int,
    slots: int,
    spare_slots: int,
    candidates: int,
    rank: int,
    sampled: bool,
    ids: str,
    dtypes: tuple[str, str, str],
    seed: int,
) -> None:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    geometry = SelectorGeometry(candidates, rank, min(slots + spare_slots, 31), sampled, ids, *dtypes)
    check_random_walk(generator, geometry, batch, slots, 64)


def check_random_walk(
    generator: torch.Generator, geometry: SelectorGeometry, batch: int, slots: int, vocabulary: int
) -> None:
    inputs = draw_selector_inputs(generator, geometry, batch, slots, vocabulary)
    temperature = uniforms = None
    if geometry.sampled:
        # Greedy and sampled rows in one launch.
        choices = torch.tensor([0.0, 0.6, 1.0, 1.3], device="cuda")
        temperature = choices[torch.randint(0, 4, (batch,), generator=generator, device="cuda")]
        uniforms = torch.rand(batch, slots, generator=generator, device="cuda")
    tokens, q = select(geometry, inputs, temperature, uniforms)
    check_walk(inputs, temperature, uniforms, tokens, q)


def extreme_inputs(logits: list[float]) -> dict[str, torch.Tensor]:
    """One slot whose scores are the logits."""
    count = len(logits)
    return {
        "candidate_ids": torch.arange(count, device="cuda")[None, None],
        "candidate_logits": torch.tensor(logits, device="cuda")[None, None],
        "projected": torch.zeros(1, 1, 4, device="cuda"),
        "predecessor_codebook": torch.ones(count, 4, device="cuda"),
        "successor_codebook": torch.ones(count, 4, device="cuda"),
        "anchor": torch.zeros(1, dtype=torch.int64, device="cuda"),
    }


@pytest.mark.parametrize(
    "logits, temperature, uniform, token",
    [
        ([1.0, 2.0, 2.0, 0.0], 0.0, 0.5, 1),
        ([-0.0, 0.0, -1.0], 0.0, 0.5, 0),
        ([-5.0, -3.0, -4.0], 0.0, 0.5, 1),
        ([float("-inf"), 1.0, float("-inf")], 0.0, 0.5, 1),
        ([0.0, 0.0, 0.0, 0.0], 1.0, 0.0, 0),
        ([0.0, 0.0, 0.0, 0.0], 1.0, 0.5, 2),
        ([0.0, 0.0, 0.0, 0.0], 1.0, 1.0 - 2.0**-24, 3),
        ([float("-inf"), 1.0, float("-inf")], 1.0, 0.0, 1),
        ([float("-inf"), 1.0, float("-inf")], 1.0, 1.0 - 2.0**-24, 1),
        ([1.0, 3.0, 2.0], 1e-38, 0.99, 1),
    ],
)
def test_ties_and_extremes(logits: list[float], temperature: float, uniform: float, token: int) -> None:
    geometry = SelectorGeometry(len(logits), 4, 1, True, "int64", *FLOATS)
    heat, uniforms = torch.tensor([temperature], device="cuda"), torch.tensor([[uniform]], device="cuda")
    tokens, q = select(geometry, extreme_inputs(logits), heat, uniforms)
    assert tokens.tolist() == [[token]]
    assert q is not None
    assert float(q.sum()) == pytest.approx(1.0)
    assert float(q[0, 0, token]) > 0.0
