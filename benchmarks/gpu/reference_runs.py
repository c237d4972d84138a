"""Decode the golden prompts on TensorRT-RTX with every drafter: tokens, acceptance, speed, device and host time."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from dfc.artifacts import Artifact, open_artifact
from dfc.runtime.decode import Decoder
from dfc.runtime.engines.cuda import CudaDevice
from dfc.runtime.engines.tensorrt_rtx import BACKEND
from dfc.runtime.generate import Generation, Limits, generate
from dfc.runtime.load import load_decoder
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "reference_runs.json"
REQUESTS = {"none": None, "mtp": 3, "dflash2": None}


@dataclass(frozen=True)
class Contender:
    """What one decoder did over all prompts; times are microseconds a round."""

    tokens_per_second: float
    load_seconds: float
    rounds: int
    accepted: int
    round_time: float
    host_time: float
    token_ids: tuple[tuple[int, ...], ...]


class HostClock:
    """Adds up the time the host spends waiting for the GPU; the rest of a round is its own."""

    def __init__(self) -> None:
        self.waiting = 0.0
        original = CudaDevice.wait_for

        def wait_for(device: CudaDevice, launch: int) -> None:
            began = time.perf_counter()
            original(device, launch)
            self.waiting += time.perf_counter() - began

        CudaDevice.wait_for = wait_for  # type: ignore[method-assign]


@click.command()
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option("--checkpoint", type=click.Path(exists=True, path_type=Path), help="Also run transformers on it.")
@click.option("--spec", "names", multiple=True, type=click.Choice(list(REQUESTS)), default=tuple(REQUESTS))
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(artifact: Path, checkpoint: Path | None, names: tuple[str, ...], output: Path) -> None:
    """Run ARTIFACT and write what happened to OUTPUT."""
    golden = json.loads(GOLDEN.read_text())
    clock = HostClock()
    opened = open_artifact(artifact)
    results: dict[str, Any] = {}
    for name in names:
        contender = run(opened, name, REQUESTS[name], golden["cases"], clock)
        results[name] = asdict(contender)
        print(
            f"{name:8s} {contender.tokens_per_second:7.0f} tokens/s, {contender.rounds} rounds of"
            f" {contender.round_time:.0f} us, host {contender.host_time:.0f} us"
            f" ({contender.host_time / contender.round_time:.1%}), accepted {contender.accepted},"
            f" loaded in {contender.load_seconds:.1f} s",
            flush=True,
        )
    if checkpoint is not None:
        from benchmarks.gpu.huggingface import measure

        results["transformers"] = measure(checkpoint, golden["cases"])
        print(f"transformers {results['transformers']['tokens_per_second']:.0f} tokens/s", flush=True)
    output.write_text(json.dumps(results))


def run(
    artifact: Artifact, name: str, draft_tokens: int | None, cases: list[dict[str, Any]], clock: HostClock
) -> Contender:
    """Decode every prompt some times and return the medians."""
    plan = resolve(SpeculationRequest(name, draft_tokens), artifact.manifest, RunContext(BACKEND))
    began = time.perf_counter()
    decoder = load_decoder(artifact, plan, BACKEND)
    loaded = time.perf_counter() - began
    generations: list[Generation] = []
    rates, rounds_times, host_times = [], [], []
    for repetition in range(4):
        generations, seconds, waiting = [], 0.0, 0.0
        for case in cases:
            generation, waited = decode(decoder, artifact, case, clock)
            generations.append(generation)
            seconds += generation.statistics.decode_seconds
            waiting += waited
        rounds = sum(generation.statistics.rounds for generation in generations)
        if repetition:
            rates.append(sum(len(generation.token_ids) - 1 for generation in generations) / seconds)
            rounds_times.append(seconds / rounds * 1e6)
            host_times.append((seconds - waiting) / rounds * 1e6)
    return Contender(
        statistics.median(rates),
        loaded,
        sum(generation.statistics.rounds for generation in generations),
        sum(generation.statistics.accepted_tokens for generation in generations),
        statistics.median(rounds_times),
        statistics.median(host_times),
        tuple(generation.token_ids for generation in generations),
    )


def decode(decoder: Decoder, artifact: Artifact, case: dict[str, Any], clock: HostClock) -> tuple[Generation, float]:
    """Decode one prompt; return the generation and the seconds of its decoding that the host waited."""
    decoder.warm_up()
    limits = Limits(len(case["greedy_ids"]), artifact.manifest.model.max_context, frozenset())
    started: list[float] = []

    def on_tokens(tokens: object) -> None:
        if not started:
            started.append(clock.waiting)

    generation = generate(decoder, case["prompt_ids"], limits, on_tokens=on_tokens)
    return generation, clock.waiting - started[0]


if __name__ == "__main__":
    main()
