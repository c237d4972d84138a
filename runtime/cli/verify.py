"""`dfc verify`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dfc.artifacts import ArtifactError
from dfc.artifacts.paths import SIGNATURE_NAME, printable
from dfc.artifacts.signature import signature_problem
from dfc.artifacts.verification import Finding, examine
from dfc.runtime.cli.against import compare, print_checks
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.comparison import Check
from dfc.runtime.errors import RunError


@click.command(short_help="Check every file of an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also compare what the artifact computes with this source checkpoint in transformers.",
)
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Text for --against, one prompt a line.  [default: bundled]",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    help="Most difference of logits for --against, relative to the largest logit.  [default: 0.001, none for an"
    " artifact built with --quantize]",
)
@click.option(
    "--key", type=click.Path(exists=True, path_type=Path), help="Ed25519 public key (PEM) whose owner must have signed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object with every file and its problem or null.")
@debug_option
def verify(
    artifact: Path, against: Path | None, prompts: Path | None, tolerance: float | None, key: Path | None, as_json: bool
) -> int:
    """Check that every file of ARTIFACT is as it was built.

    All contents are read and their SHA-256 compared with the manifest; files that are missing or not listed, links, and
    tensors that lie outside their file are found too. The manifest is checked against the digest in itself, which
    shows damage, not who wrote it: that is what `dfc sign` and --key are for.

    With --against, logits, perplexity and greedy tokens are compared with the source checkpoint's, and each drafter's
    tokens and states with plain decoding's. This needs an artifact for onnxruntime, and torch and transformers.

    The exit code is 0 when everything is sound and 1 when anything is not.
    """
    if prompts is not None and against is None:
        raise click.UsageError("--prompts is the text for --against; give a checkpoint, too")
    checks: tuple[Check, ...] = ()
    try:
        with hashing_progress() as progress:
            findings = examine(artifact, progress)
        if key is not None:
            findings.append(Finding(SIGNATURE_NAME, None, signature_problem(artifact, key)))
        problems = sum(finding.problem is not None for finding in findings)
        # What does not fit its digests is not run.
        if against is not None and not problems:
            checks = compare(artifact, against, prompts, tolerance)
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error
    sound = not problems and all(check.passed is not False for check in checks)
    if as_json:
        files = [asdict(finding) for finding in findings]
        report: dict[str, object] = {"artifact": str(artifact), "sound": sound, "files": files}
        if against is not None:
            report["checks"] = [asdict(check) for check in checks]
        click.echo(json.dumps(report, indent=2))
    else:
        _print_table(findings, problems)
        if checks:
            print_checks(checks)
    return 0 if sound else 1


def _print_table(findings: Sequence[Finding], problems: int) -> None:
    console = Console(highlight=False)
    table = Table("file", "bytes", "result")
    table.columns[0].overflow = table.columns[2].overflow = "fold"
    table.columns[1].justify = "right"
    for finding in findings:
        size = "" if finding.size is None else str(finding.size)
        result = "sound" if finding.problem is None else printable(finding.problem)
        style = None if finding.problem is None else "red"
        table.add_row(escape(printable(finding.name)), size, escape(result), style=style)
    console.print(table)
    console.print(f"{len(findings)} files, {problems or 'no'} problem{'' if problems == 1 else 's'}")
