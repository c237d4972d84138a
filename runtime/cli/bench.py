"""`dfc bench`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from dfc.artifacts import Artifact, ArtifactError, Component, open_artifact
from dfc.runtime.batch_benchmark import MeasuredBatch, measure_batches
from dfc.runtime.benchmark import Measured, measure, peak_memory
from dfc.runtime.cli.against import encode_prompts, read_prompts
from dfc.runtime.cli.bench_report import render
from dfc.runtime.cli.options import debug_option
from dfc.runtime.drafters import KINDS
from dfc.runtime.engines import choose_backend
from dfc.runtime.engines.onnxruntime import BACKEND as ONNXRUNTIME
from dfc.runtime.errors import RunError
from dfc.runtime.plan import RunContext, SpeculationPlan, SpeculationRequest, resolve
from dfc.runtime.policy import NONE


@click.command(short_help="Measure an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text, one prompt a line.  [default: bundled]",
)
@click.option(
    "--draft-tokens", type=click.IntRange(min=1), multiple=True, help="A draft length; may be repeated.  [default: all]"
)
@click.option(
    "--context",
    "contexts",
    type=click.IntRange(min=1),
    multiple=True,
    help="Also with prompts of so many tokens, repeated text; may be repeated.",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(min=2),
    multiple=True,
    help="Also with so many sequences in every call (onnxruntime); may be repeated.",
)
@click.option(
    "--max-new", type=click.IntRange(min=2), default=64, show_default=True, help="New tokens after each prompt."
)
@click.option(
    "--repetitions", type=click.IntRange(min=1), default=3, show_default=True, help="Repetitions, interleaved."
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every figure to this file."
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report with plots to this file.",
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also show tokens a second as multiples of those in the --json file of an earlier run.",
)
@debug_option
def bench(
    artifact: Path,
    prompts: Path | None,
    draft_tokens: tuple[int, ...],
    contexts: tuple[int, ...],
    batch_sizes: tuple[int, ...],
    max_new: int,
    repetitions: int,
    json_file: Path | None,
    html_file: Path | None,
    compare: Path | None,
) -> None:
    """Measure ARTIFACT: plain decoding and every drafter with every number of draft tokens.

    All engines are loaded together, and the repetitions of all ways to decode are interleaved, so that what else the
    machine does touches all alike. Rates are medians with the least and the most of the repetitions.
    """
    for file in (json_file, html_file):
        if file is not None and not file.resolve().parent.is_dir():
            raise click.UsageError(f"{file} cannot be written: its directory does not exist")
    before = None if compare is None else _read_rates(compare)
    try:
        opened = open_artifact(artifact)
        backend = choose_backend(opened)
        if batch_sizes and backend != ONNXRUNTIME:
            raise RunError(f"--batch-size needs onnxruntime; engines of {backend} take one sequence")
        plans = _plans(opened, backend, draft_tokens)
        texts = _prompts(opened, prompts, contexts, max_new)
        measured = measure(opened, backend, plans, texts, max_new, repetitions, _progress("repetition"))
        # Batches load engines of their own, one way after another.
        memory = peak_memory()
        sizes = sorted(set(batch_sizes))
        batches = measure_batches(opened, plans, texts[0], sizes, max_new, repetitions, _progress("batch"))
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error
    report = {
        "artifact": str(artifact),
        "model": opened.manifest.model.name,
        "backend": backend,
        "max_new": max_new,
        "repetitions": repetitions,
        "peak_memory_bytes": memory,
        "measured": [{"name": entry.name, **asdict(entry)} for entry in measured],
        "batches": [{"name": entry.name, **asdict(entry)} for entry in batches],
    }
    try:
        if json_file is not None:
            json_file.write_text(json.dumps(report, indent=2) + "\n")
        if html_file is not None:
            html_file.write_text(render(report, measured), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the report cannot be written: {error}") from error
    console = Console(highlight=False)
    if not console.is_terminal:
        # In a log, a row is a line.
        console = Console(highlight=False, width=120)
    _print_table(console, measured, before)
    console.print(f"peak memory with all engines loaded: {memory / 1e6:.0f} MB")
    if batches:
        _print_batches(console, batches)


def _progress(what: str) -> Callable[[int, int], None]:
    """Return what prints a line for each `what` that is done."""
    console = Console(stderr=True, highlight=False)
    return lambda done, total: console.print(f"{what} {done} of {total}")


def _read_rates(file: Path) -> dict[tuple[str, int], float]:
    """Return the decoding rate of each way and context, tokens a second, in the report of an earlier run."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["measured"]
        return {(entry["name"], entry["context"]): float(entry["decode"]["median"]) for entry in entries}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise click.ClickException(
            f"--compare {file} is not what `dfc bench --json` writes; give such a file"
        ) from None


def _plans(artifact: Artifact, backend: str, wanted: Sequence[int]) -> list[SpeculationPlan]:
    context = RunContext(backend)
    plans = [resolve(SpeculationRequest(NONE), artifact.manifest, context)]
    components: dict[str, Component] = {str(name): part for name, part in artifact.manifest.components.items()}
    for name, kind in KINDS.items():
        if name in components:
            most = kind.limits(components[name]).most
            lengths = [length for length in sorted(set(wanted)) if length <= most] if wanted else range(1, most + 1)
            plans += [resolve(SpeculationRequest(name, length), artifact.manifest, context) for length in lengths]
    return plans


def _prompts(
    artifact: Artifact, file: Path | None, contexts: Sequence[int], max_new: int
) -> dict[int, Sequence[Sequence[int]]]:
    texts = encode_prompts(artifact, read_prompts(file), max_new)
    prompts: dict[int, Sequence[Sequence[int]]] = {0: texts}
    # A round may run past the last token wanted.
    room = artifact.manifest.model.max_context - max_new - 32
    for length in sorted(set(contexts)):
        if length > room:
            raise RunError(
                f"--context {length} with --max-new {max_new} does not fit the artifact's context; most: {room}"
            )
        tokens = list(itertools.islice(itertools.cycle(itertools.chain(*texts)), length))
        prompts[length] = [tokens]
    return prompts


def _table(*heads: str) -> Table:
    """Return a table whose first two columns are text and the others figures."""
    table = Table(*heads, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns[2:]:
        column.justify = "right"
    return table


def _print_batches(console: Console, batches: Sequence[MeasuredBatch]) -> None:
    table = _table("batch", "decoding", "tokens/s of all", "spread", "ms a round", "a round and sequence")
    for entry in batches:
        table.add_row(
            str(entry.batch_size),
            entry.name,
            f"{entry.decode.median:.0f}",
            f"{entry.decode.least:.0f}-{entry.decode.most:.0f}",
            f"{entry.round_ms:.2f}",
            f"{entry.tokens_per_round:.2f} ({entry.accepted_per_round:.2f})",
        )
    console.print(table)


def _print_table(
    console: Console, measured: Sequence[Measured], before: Mapping[tuple[str, int], float] | None
) -> None:
    table = _table("context", "decoding", "prefill/s", "tokens/s", "spread", "draft", "verify", "host", "a round")
    if before is not None:
        table.add_column("x before", justify="right")
    for entry in measured:
        table.add_row(
            str(entry.context or "text"),
            entry.name,
            f"{entry.prefill.median:.0f}",
            f"{entry.decode.median:.0f}",
            f"{entry.decode.least:.0f}-{entry.decode.most:.0f}",
            f"{entry.draft_ms:.2f}",
            f"{entry.verify_ms:.2f}",
            f"{entry.host_ms:.2f}",
            f"{entry.tokens_per_round:.2f} ({entry.accepted_per_round:.2f})",
            *([] if before is None else [_ratio(entry, before)]),
        )
    console.print(table)
    console.print("draft, verify and host in milliseconds of one round; a round: its tokens (its accepted drafts)")


def _ratio(entry: Measured, before: Mapping[tuple[str, int], float]) -> str:
    rate = before.get((entry.name, entry.context))
    return f"{entry.decode.median / rate:.2f}" if rate else "new"
