"""Decoding speed on a CPU, dfc against its peers, in one run on one machine: `python benchmarks/cpu/compare.py`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import machine
import peers
from contenders import CONTENDERS, GENAI, PLAIN, Contender, worker
from floor import FLOAT32_BYTES, WeightCounts, count_weights, floor
from measurement import Measurement, load_cases
from rich.console import Console
from rich.table import Table
from worker import Worker, WorkerError

RESULTS = Path(__file__).resolve().parent / "results"
CASES = peers.ROOT / "tests" / "golden" / "reference_runs.json"
DRAFTER = peers.ROOT / "examples" / "reference" / "dflash2"
ARTIFACT = peers.ROOT / "build" / "bench" / "artifact"
DISTURBED = 0.1
"""Cores that other processes may use before the table says so."""

HEADINGS = ("decode tok/s", "range", "best", "x genai", "x plain", "tok/round", "prefill tok/s", "equal", "floor tok/s")
NAMES = tuple(contender.name for contender in CONTENDERS)


@click.command()
@click.option(
    "--artifact", type=click.Path(exists=True, path_type=Path), help="dfc artifact to measure.  [default: built anew]"
)
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="Measure these only.")
@click.option("--repetitions", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--new-tokens", type=click.IntRange(2, 96), default=96, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="JSON to write.  [default: results/PROCESSOR.json]")
def main(
    artifact: Path | None, only: tuple[str, ...], repetitions: int, new_tokens: int, threads: int, output: Path | None
) -> None:
    """Measure tokens a second of greedy fp32 decoding on the reference model, contender after contender.

    Prompts, expected tokens and lengths are those of tests/golden/reference_runs.json. Repetitions are interleaved: a
    machine that becomes slower slows every contender.
    """
    # A log has no width of its own, and a narrow table cuts names.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    if threads > len(os.sched_getaffinity(0)):
        raise click.UsageError(f"--threads {threads} is more than the {len(os.sched_getaffinity(0))} cores there are")
    chosen = [contender for contender in CONTENDERS if not only or contender.name in only]
    try:
        if artifact is None and any(contender.kind == "dfc" for contender in chosen):
            artifact = _build()
        measured, versions, disturbance = _measure(chosen, artifact, repetitions, new_tokens, threads)
    except (peers.PeerError, WorkerError) as error:
        raise click.ClickException(str(error)) from error
    counts = count_weights(peers.TARGET, DRAFTER)
    limits = _machine_limits(counts.target * FLOAT32_BYTES, threads)
    rows = [_row(contender, measured, counts, limits) for contender in chosen]
    report = {
        "machine": {**machine.describe(), **limits, "cores_used_by_others": disturbance},
        "versions": versions,
        "workload": {
            "cases": len(load_cases(CASES)),
            "new_tokens": new_tokens,
            "repetitions": repetitions,
            "threads": threads,
        },
        "contenders": rows,
    }
    _print(console, report)
    slug = re.sub(r"[^a-z0-9]+", "-", machine.describe()["processor"].lower()).strip("-")
    output = output or RESULTS / f"{slug}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {output}", soft_wrap=True)


def _build() -> Path:
    command = [sys.executable, "-m", "dfc.runtime.cli.main", "build", str(peers.TARGET), "--draft", str(DRAFTER)]
    subprocess.run([*command, "-o", str(ARTIFACT), "--force"], check=True)
    return ARTIFACT


def _measure(
    chosen: list[Contender], artifact: Path | None, repetitions: int, new_tokens: int, threads: int
) -> tuple[dict[str, Measurement], dict[str, str], float]:
    """Return the measurements and versions, and how many cores' worth of time other processes took meanwhile."""
    cases = load_cases(CASES)
    measured = {contender.name: Measurement(cases, new_tokens) for contender in chosen}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for contender in chosen:
            workers[contender.name] = stack.enter_context(worker(contender, artifact, threads))
            versions |= workers[contender.name].versions
            measured[contender.name].warm_up(workers[contender.name])
        began, busy = time.perf_counter(), machine.busy_seconds() - _own_seconds(workers)
        for repetition in range(repetitions):
            for name, running in workers.items():
                measured[name].repeat(running)
                rate = measured[name].decode_rates[-1]
                click.echo(f"repetition {repetition + 1}: {name} {rate:.0f} tokens/s", err=True)
        others = machine.busy_seconds() - _own_seconds(workers) - busy
        disturbance = max(0.0, others) / (time.perf_counter() - began)
    return measured, versions, disturbance


def _own_seconds(workers: dict[str, Worker]) -> float:
    own = os.times()
    return own.user + own.system + sum(running.processor_seconds() for running in workers.values())


def _machine_limits(working_set: int, threads: int) -> dict[str, float]:
    command = [sys.executable, str(peers.HERE / "machine.py"), str(working_set), str(threads)]
    limits: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return limits


def _row(
    contender: Contender, measured: dict[str, Measurement], counts: WeightCounts, limits: dict[str, float]
) -> dict[str, Any]:
    measurement = measured[contender.name]
    least = floor(counts, contender.speculation, contender.draft_tokens, measurement.tokens_per_round)
    seconds = least.seconds(limits["read_bytes_per_second"], limits["operations_per_second"])
    rate = measurement.tokens_per_second
    return {
        **asdict(contender),
        "tokens_per_second": rate,
        "best_tokens_per_second": measurement.best_tokens_per_second,
        "tokens_per_second_of_repetitions": measurement.decode_rates,
        "prompt_tokens_per_second": sorted(measurement.prefill_rates)[len(measurement.prefill_rates) // 2],
        "tokens_per_round": measurement.tokens_per_round,
        "equal_outputs": measurement.equal_outputs,
        "over_genai": _ratio(rate, measured.get(GENAI)),
        "over_plain": _ratio(rate, measured.get(PLAIN)),
        "floor_weight_bytes_per_token": least.weight_bytes,
        "floor_operations_per_token": least.operations,
        "floor_tokens_per_second": 1 / seconds,
        "share_of_floor": rate * seconds,
    }


def _ratio(rate: float, other: Measurement | None) -> float | None:
    return None if other is None else rate / other.tokens_per_second


def _print(console: Console, report: dict[str, Any]) -> None:
    limits, workload = report["machine"], report["workload"]
    console.print(
        f"{limits['processor']}, {workload['threads']} threads; {workload['cases']} prompts,"
        f" {workload['new_tokens']} new tokens, median of {workload['repetitions']}"
    )
    console.print(
        f"reads {limits['read_bytes_per_second'] / 1e9:.1f} GB/s from {limits['working_set_bytes'] / 1e6:.0f} MB"
        f" (memory {limits['memory_read_bytes_per_second'] / 1e9:.1f}),"
        f" {limits['operations_per_second'] / 1e9:.0f} fp32 GFLOP/s"
    )
    table = Table()
    table.add_column("")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for row in report["contenders"]:
        rates = row["tokens_per_second_of_repetitions"]
        table.add_row(
            row["name"],
            f"{row['tokens_per_second']:.0f}",
            f"{min(rates):.0f} to {max(rates):.0f}",
            f"{row['best_tokens_per_second']:.0f}",
            *("" if row[key] is None else f"{row[key]:.2f}" for key in ("over_genai", "over_plain")),
            f"{row['tokens_per_round']:.2f}",
            f"{row['prompt_tokens_per_second']:.0f}",
            f"{row['equal_outputs']}/{workload['cases']}",
            f"{row['floor_tokens_per_second']:.0f} ({row['share_of_floor']:.0%})",
        )
    console.print(table)
    if limits["cores_used_by_others"] > DISTURBED:
        console.print(
            f"other processes used {limits['cores_used_by_others']:.1f} cores meanwhile: repeat when it is quiet",
            style="bold red",
        )


if __name__ == "__main__":
    main()
