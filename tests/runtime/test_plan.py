"""Resolution as a table: every request against every content of an artifact."""

from __future__ import annotations

import pytest

from dfc.artifacts import Component, Engine, Manifest, Model, Stage
from dfc.runtime.errors import RunError
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve

CONTEXT = RunContext("onnxruntime")


def manifest(*drafters: str, backend: str = "onnxruntime") -> Manifest:
    components = {"target": Component(source="target")}
    stages = {"target_advance": "target", "target_verify": "target"}
    if "mtp" in drafters:
        components["mtp"] = Component(source="target", parameters={"draft_tokens": 8})
        stages |= {f"draft_mtp_{count}": "mtp" for count in range(1, 9)}
    if "dflash2" in drafters:
        components["dflash2"] = Component(source="draft", parameters={"draft_tokens": 7})
        stages["draft_dflash2"] = "dflash2"
    if "dflash" in drafters:
        components["dflash"] = Component(source="draft", parameters={"draft_tokens": 15})
        stages["draft_dflash"] = "dflash"
    return Manifest.model_validate(
        {
            "model": Model(
                name="target",
                architecture="Qwen3_5ForCausalLM",
                hidden_size=8,
                vocab_size=16,
                num_layers=1,
                max_context=64,
                eos_token_ids=(),
                candidate_vocab_size=16,
            ),
            "precision": "float32",
            "backends": (backend,),
            "components": components,
            "stages": {
                name: Stage.model_validate(
                    {
                        "component": component,
                        "inputs": (),
                        "outputs": (),
                        "engines": {
                            backend: (
                                Engine(
                                    path=f"stages/{name}/model.onnx",
                                    precision="float32",
                                    library="onnxruntime",
                                    library_version="1",
                                ),
                            )
                        },
                    }
                )
                for name, component in stages.items()
            },
        }
    )


@pytest.mark.parametrize(
    "drafters, request_, chosen, draft_tokens, stage",
    [
        ((), "auto", "none", 0, None),
        (("mtp",), "auto", "mtp", 3, "draft_mtp_3"),
        (("dflash2",), "auto", "dflash2", 7, "draft_dflash2"),
        (("mtp", "dflash2"), "auto", "dflash2", 7, "draft_dflash2"),
        (("mtp", "dflash2"), "mtp", "mtp", 3, "draft_mtp_3"),
        (("mtp", "dflash2"), "dflash2", "dflash2", 7, "draft_dflash2"),
        (("mtp", "dflash2"), "none", "none", 0, None),
        (("dflash",), "auto", "dflash", 15, "draft_dflash"),
        (("mtp", "dflash"), "auto", "dflash", 15, "draft_dflash"),
        (("mtp", "dflash"), "mtp", "mtp", 3, "draft_mtp_3"),
        (("mtp", "dflash", "dflash2"), "auto", "dflash2", 7, "draft_dflash2"),
        (("mtp", "dflash", "dflash2"), "dflash", "dflash", 15, "draft_dflash"),
        ((), "none", "none", 0, None),
    ],
)
def test_default_draft_tokens(
    drafters: tuple[str, ...], request_: str, chosen: str, draft_tokens: int, stage: str | None
) -> None:
    plan = resolve(SpeculationRequest(request_), manifest(*drafters), CONTEXT)
    assert (plan.speculation, plan.draft_tokens) == (chosen, draft_tokens)
    assert (plan.draft_stage or None) == stage
    assert plan.target_stage == ("target_advance" if chosen == "none" else "target_verify")
    assert plan.reason


@pytest.mark.parametrize("count", range(1, 8))
def test_any_number_of_drafts_up_to_the_limit(count: int) -> None:
    content = manifest("mtp", "dflash2")
    assert resolve(SpeculationRequest("mtp", count), content, CONTEXT).draft_tokens == count
    assert resolve(SpeculationRequest("dflash2", count), content, CONTEXT).draft_tokens == count


def test_no_drafts_is_plain_decoding() -> None:
    assert resolve(SpeculationRequest("auto", 0), manifest("mtp"), CONTEXT).speculation == "none"


@pytest.mark.parametrize(
    "drafters, request_, draft_tokens, fragment",
    [
        ((), "mtp", None, "holds no drafter"),
        (("mtp",), "dflash2", None, "holds mtp"),
        (("dflash2",), "mtp", None, "holds dflash2"),
        (("dflash2",), "dflash", None, "holds dflash2 for"),
        (("dflash",), "dflash2", None, "holds dflash for"),
        (("dflash",), "dflash", 16, "more than the 15"),
        (("mtp",), "mtp", 9, "more than the 8"),
        (("dflash2",), "auto", 8, "more than the 7"),
        ((), "auto", 3, "--draft-tokens"),
        (("mtp",), "none", 3, "--draft-tokens"),
    ],
)
def test_what_does_not_fit_is_refused(
    drafters: tuple[str, ...], request_: str, draft_tokens: int | None, fragment: str
) -> None:
    with pytest.raises(RunError, match=fragment):
        resolve(SpeculationRequest(request_, draft_tokens), manifest(*drafters), CONTEXT)


def test_a_drafter_without_an_engine_for_the_backend_does_not_count() -> None:
    content = manifest("mtp", backend="tensorrt-rtx")
    assert resolve(SpeculationRequest(), content, CONTEXT).speculation == "none"
