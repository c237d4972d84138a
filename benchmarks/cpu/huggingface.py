"""Contender: transformers `generate` in fp32, greedy. Run as `huggingface.py CHECKPOINT THREADS`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from worker import Decode, Decoded, limit_threads, serve


class _Clock:
    """A streamer that notes when tokens arrive: `generate` hands it the prompt first, then every new token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to do: the last token has its time already."""


def load(checkpoint: str, threads: int) -> tuple[dict[str, str], Decode]:
    """Load the checkpoint in fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    # No end-of-sequence token: every answer has the wanted length.
    model.generation_config.eos_token_id = None

    def decode(prompt_ids: Sequence[int], new_tokens: int) -> Decoded:
        ids = torch.tensor([list(prompt_ids)])
        clock = _Clock()
        with torch.inference_mode():
            began = time.perf_counter()
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                streamer=clock,
            )
        token_ids = output[0, len(prompt_ids) :].tolist()
        first, last = clock.times[1], clock.times[-1]
        return Decoded(token_ids, first - began, last - first, new_tokens - 1)

    return {name: version(name) for name in ("transformers", "torch")}, decode


if __name__ == "__main__":
    limit_threads(int(sys.argv[2]))
    serve(lambda: load(sys.argv[1], int(sys.argv[2])))
