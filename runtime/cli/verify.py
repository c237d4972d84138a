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
from dfc.artifacts.paths import printable
from dfc.artifacts.verification import Finding, examine
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option


@click.command(short_help="Check every file of an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object with every file and its problem or null.")
@debug_option
def verify(artifact: Path, as_json: bool) -> int:
    """Check that every file of ARTIFACT is as it was built.

    All contents are read and their SHA-256 compared with the manifest; files that are missing or not listed, links, and
    tensors that lie outside their file are found too. The manifest is checked against the digest in itself, which
    shows damage, not who wrote it.

    The exit code is 0 when everything is sound and 1 when anything is not.
    """
    try:
        with hashing_progress() as progress:
            findings = examine(artifact, progress)
    except ArtifactError as error:
        raise click.ClickException(str(error)) from error
    problems = sum(finding.problem is not None for finding in findings)
    if as_json:
        files = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"artifact": str(artifact), "sound": not problems, "files": files}, indent=2))
    else:
        _print_table(findings, problems)
    return 1 if problems else 0


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
