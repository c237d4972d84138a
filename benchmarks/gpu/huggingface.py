"""Contender: transformers `generate` in bfloat16 with a static cache and torch.compile, greedy."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

PROMPTS = 4
"""The first prompts stand for all: a token takes the same time in each."""


def measure(checkpoint: Path, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return tokens/s over the tokens after the first, for each kind of cache that this model can be run with."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16).eval().to("cuda")
    model.generation_config.eos_token_id = None
    found: dict[str, Any] = {}
    for name, options in (("dynamic", {}), ("static", {"cache_implementation": "static"})):
        try:
            found[name] = _rate(model, cases[:PROMPTS], options)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
        print(f"transformers, {name} cache: {found[name]}", flush=True)
    # `generate` compiles by itself only where it knows the cache to be compilable; this is the whole step by hand.
    try:
        found["compiled"] = _compiled_rate(model, cases[:PROMPTS])
    except Exception as error:
        found["compiled"] = f"{type(error).__name__}: {error}"[:300]
    rates = [value for value in found.values() if isinstance(value, float)]
    return {"tokens_per_second": max(rates), "by_cache": found}


def _rate(model: Any, cases: list[dict[str, Any]], options: dict[str, Any]) -> float:
    import torch

    def seconds(ids: Any, tokens: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
        torch.cuda.synchronize()
        assert output.shape[1] == ids.shape[1] + tokens
        return time.perf_counter() - began

    rates = []
    for case in cases:
        ids = torch.tensor([case["prompt_ids"]], device="cuda")
        tokens = len(case["greedy_ids"])
        seconds(ids, tokens)
        # The first token belongs to the prompt.
        whole, prompt = (statistics.median(seconds(ids, count) for _ in range(3)) for count in (tokens, 1))
        rates.append((tokens - 1) / (whole - prompt))
    return statistics.median(rates)


def _compiled_rate(model: Any, cases: list[dict[str, Any]]) -> float:
    import torch

    model.forward = torch.compile(model.forward, mode="reduce-overhead")
    return _rate(model, cases, {"cache_implementation": "static"})
