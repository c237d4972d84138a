"""List where runs on the GPU differ from each other, with how near the two tokens' logits are in float32."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parents[2]


def main(runs: Path) -> None:
    """Print a line for every prompt in which a drafter's tokens differ from plain decoding's, and plain's from golden.

    The logits are transformers' in float32 after the tokens that both have in common.
    """
    cases = json.loads((ROOT / "tests" / "golden" / "reference_runs.json").read_text())["cases"]
    found = json.loads(runs.read_text())
    model = AutoModelForCausalLM.from_pretrained(ROOT / "examples/reference/target", dtype=torch.float32).eval()
    plain = [list(tokens) for tokens in found["none"]["token_ids"]]
    pairs = {
        "none against float32": (plain, [case["greedy_ids"] for case in cases]),
        **{f"{name} against none": (found[name]["token_ids"], plain) for name in ("mtp", "dflash2")},
    }
    for name, (left, right) in pairs.items():
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            place = next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
            if place is None:
                continue
            with torch.inference_mode():
                ids = torch.tensor([[*cases[index]["prompt_ids"], *one[:place]]])
                logits = model(ids).logits[0, -1]
            first, second = logits[one[place]].item(), logits[other[place]].item()
            spacing = 2.0 ** (torch.tensor(max(abs(first), abs(second))).log2().floor().item() - 7)
            print(
                f"{name}, prompt {index}, token {place}: logits {first:.4f} and {second:.4f}, apart by"
                f" {abs(first - second):.4f}; bfloat16 steps there are {spacing:.4f}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
