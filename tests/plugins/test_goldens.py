"""Every face against values that independent implementations computed."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from safetensors.numpy import load_file

from dfc.runtime.engine import Array
from tests.paths import GOLDEN
from tests.plugins import faces

CASES = json.loads((GOLDEN / "ops.json").read_text())
CONVOLUTIONS = [case for case in CASES if case["op"] == "grouped_conv"]
SELECTORS = [case for case in CASES if case["op"] == "selector"]


@pytest.fixture(scope="module")
def golden() -> dict[str, Array]:
    return load_file(GOLDEN / "ops.safetensors")


@pytest.mark.parametrize("convolve", [faces.convolve_by_reference, faces.convolve_by_body])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"conv{case['case']}")
def test_grouped_convolution(golden: dict[str, Array], case: dict[str, int], convolve: Callable[..., Array]) -> None:
    values = {name: golden[f"conv{case['case']}.{name}"] for name in ("x", "kernel_projection", "base_kernel")}
    sublayer_output = golden[f"conv{case['case']}.sublayer_output"]
    coefficients = values["x"] @ values["kernel_projection"].T
    geometry = (case["taps"], case["group"])
    prepared = convolve(values["x"], coefficients, values["base_kernel"], None, 0, *geometry)
    np.testing.assert_allclose(prepared, golden[f"conv{case['case']}.prepared"], rtol=1e-5, atol=1e-5)
    finished = convolve(sublayer_output, coefficients, values["base_kernel"], None, 1, *geometry)
    np.testing.assert_allclose(finished, golden[f"conv{case['case']}.finished"], rtol=1e-5, atol=1e-5)
    residual = convolve(sublayer_output, coefficients, values["base_kernel"], values["x"], 1, *geometry)
    np.testing.assert_allclose(residual, finished + values["x"], rtol=1e-5, atol=1e-5)


def selector_inputs(golden: dict[str, Array], case: dict[str, int]) -> dict[str, Array]:
    def value(name: str) -> Array:
        return golden[f"selector{case['case']}.{name}"]

    return {
        "candidate_ids": value("candidate_ids"),
        "candidate_logits": value("unary_logits"),
        "projected": value("hidden") @ value("hidden_projection").T,
        "predecessor_codebook": value("predecessor_codebook"),
        "successor_codebook": value("successor_codebook"),
        "anchor": value("anchor"),
    }


@pytest.mark.parametrize("select", [faces.select_by_reference, faces.select_by_body])
@pytest.mark.parametrize("case", SELECTORS, ids=lambda case: f"selector{case['case']}")
def test_selector(golden: dict[str, Array], case: dict[str, int], select: Callable[..., tuple[Array, Array]]) -> None:
    inputs, prefix = selector_inputs(golden, case), f"selector{case['case']}"
    uniforms, temperatures = golden[f"{prefix}.uniforms"], golden[f"{prefix}.temperatures"]
    tokens, q = select(inputs, temperatures, uniforms)
    np.testing.assert_array_equal(tokens, golden[f"{prefix}.sampled_tokens"])
    np.testing.assert_allclose(q, golden[f"{prefix}.sampled_q"], rtol=1e-5, atol=1e-5)
    greedy, one_hot = select(inputs, np.zeros_like(temperatures), uniforms)
    np.testing.assert_array_equal(greedy, golden[f"{prefix}.greedy_tokens"])
    np.testing.assert_array_equal(np.sort(one_hot, axis=-1)[..., -1], 1.0)
    np.testing.assert_array_equal(one_hot.sum(-1), 1.0)


@pytest.mark.parametrize("case", SELECTORS, ids=lambda case: f"selector{case['case']}")
def test_greedy_selector_of_the_draft_graph(golden: dict[str, Array], case: dict[str, int]) -> None:
    tokens = faces.select_greedily_by_body(selector_inputs(golden, case), max_slots=31)
    np.testing.assert_array_equal(tokens, golden[f"selector{case['case']}.greedy_tokens"])
