"""Contender: onnxruntime-genai, plain greedy decoding. Run as `genai.py MODEL_DIRECTORY THREADS`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version

from worker import Decode, Decoded, limit_threads, serve


def load(directory: str, threads: int) -> tuple[dict[str, str], Decode]:
    """Load what `onnxruntime_genai.models.builder` wrote to `directory`."""
    import numpy as np
    import onnxruntime_genai as og

    config = og.Config(directory)
    session_options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": session_options}}}))
    model = og.Model(config)

    def decode(prompt_ids: Sequence[int], new_tokens: int) -> Decoded:
        parameters = og.GeneratorParams(model)
        length = len(prompt_ids) + new_tokens
        # The minimum length keeps the end-of-sequence token from being chosen.
        parameters.set_search_options(do_sample=False, max_length=length, min_length=length)
        generator = og.Generator(model, parameters)
        ids = np.asarray(prompt_ids, dtype=np.int32)
        began = time.perf_counter()
        generator.append_tokens(ids)
        generator.generate_next_token()
        prefilled = time.perf_counter()
        for _ in range(new_tokens - 1):
            generator.generate_next_token()
        ended = time.perf_counter()
        token_ids = [int(token) for token in generator.get_sequence(0)[len(prompt_ids) :]]
        return Decoded(token_ids, prefilled - began, ended - prefilled, new_tokens - 1)

    return {name: version(name) for name in ("onnxruntime-genai", "onnxruntime")}, decode


if __name__ == "__main__":
    limit_threads(int(sys.argv[2]))
    serve(lambda: load(sys.argv[1], int(sys.argv[2])))
