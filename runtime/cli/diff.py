"""`dfc diff`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dfc.artifacts import ArtifactError, open_artifact
from dfc.artifacts.difference import Change, differences
from dfc.artifacts.paths import printable
from dfc.runtime.cli.options import debug_option

ARTIFACT = click.Path(exists=True, path_type=Path)


@click.command(short_help="Show what differs between two artifacts.")
@click.argument("a", type=ARTIFACT)
@click.argument("b", type=ARTIFACT)
@click.option("--json", "as_json", is_flag=True, help="Print one object with every change in full.")
@debug_option
def diff(a: Path, b: Path, as_json: bool) -> int:
    """Show what differs between the artifacts A and B.

    Compared are the model, components and their parameters, stages, tensors, engines, weights, files by digest and
    size, and the options and tools of the build, as the manifests say them; `dfc verify` checks that the files are what
    a manifest says.

    The exit code is 0 when the artifacts are equal and 1 when they differ, and also 1 when one cannot be opened, with a
    sentence on standard error.
    """
    try:
        changes = differences(open_artifact(a).manifest, open_artifact(b).manifest)
    except ArtifactError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        listed = [asdict(change) for change in changes]
        click.echo(json.dumps({"a": str(a), "b": str(b), "equal": not changes, "changes": listed}, indent=2))
    else:
        _print_table(a, b, changes)
    return 1 if changes else 0


def _print_table(a: Path, b: Path, changes: Sequence[Change]) -> None:
    console = Console(highlight=False)
    if not changes:
        console.print("the artifacts are equal")
        return
    table = Table("section", "item", "field", escape(f"A: {printable(str(a))}"), escape(f"B: {printable(str(b))}"))
    for column in table.columns:
        column.overflow = "fold"
    previous = ""
    for change in changes:
        if previous and previous != change.section:
            table.add_section()
        section, previous = "" if previous == change.section else change.section, change.section
        table.add_row(section, escape(printable(change.item)), escape(printable(change.field or "")), *_sides(change))
    console.print(table)
    console.print(f"{len(changes)} difference{'' if len(changes) == 1 else 's'}")


def _sides(change: Change) -> tuple[str, str]:
    if change.field is None:
        # The item as a whole is there or not; --json has its fields.
        return ("-", "added") if change.a is None else ("removed", "-")
    return _short(change.field, change.a), _short(change.field, change.b)


def _short(field: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return escape(printable(text[:16] if field == "sha256" else text))
