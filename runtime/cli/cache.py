"""`dfc cache`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dfc.plugins.user_cache import cache_directory
from dfc.runtime.cli.options import debug_option

DAY = 86_400


@dataclass(frozen=True)
class Entry:
    """One thing in the cache; `used` is when it was last, in seconds since the epoch."""

    path: Path
    size: int
    used: float


@click.group(invoke_without_command=True, short_help="Show or prune what dfc keeps between runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one object instead of a table.")
@debug_option
@click.pass_context
def cache(context: click.Context, as_json: bool) -> None:
    """Show what dfc keeps for this user between runs: compiled stages, kernels, and which files were found sound.

    All of it can be made again. It lies in $XDG_CACHE_HOME/dfc, ~/.cache/dfc without it.
    """
    if context.invoked_subcommand is not None:
        return
    root = cache_directory("")
    kinds = {kind: _entries(root / kind) for kind in _kinds(root)}
    if as_json:
        sizes = {kind: {"entries": len(found), "bytes": _bytes(found)} for kind, found in kinds.items()}
        click.echo(json.dumps({"directory": str(root), "kinds": sizes}, indent=2))
        return
    table = Table("kind", "entries", "bytes")
    for kind, found in kinds.items():
        table.add_row(kind, str(len(found)), str(_bytes(found)))
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"{sum(map(_bytes, kinds.values())) / 1e6:.1f} MB in {root}", markup=False)


@cache.command(short_help="Remove compiled stages.")
@click.option("--days", type=click.FloatRange(min=0), help="Only those that no build has used for so many days.")
@click.option("--megabytes", type=click.FloatRange(min=0), help="Only the longest unused, until no more is left.")
@debug_option
def prune(days: float | None, megabytes: float | None) -> None:
    """Remove compiled stages: all of them, or those that --days or --megabytes names."""
    found = sorted(_entries(cache_directory("stages")), key=lambda entry: entry.used)
    removed, left = [], _bytes(found)
    for entry in found:
        is_old = days is not None and entry.used < time.time() - days * DAY
        is_too_much = megabytes is not None and left > megabytes * 1e6
        if is_old or is_too_much or (days is None and megabytes is None):
            try:
                entry.path.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise click.ClickException(f"cannot remove {entry.path}: {error.strerror}") from error
            removed.append(entry)
            left -= entry.size
    click.echo(f"removed {len(removed)} of {len(found)} stages, {_bytes(removed) / 1e6:.1f} MB", err=True)


def _kinds(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _entries(directory: Path) -> list[Entry]:
    if not directory.is_dir():
        return []
    found = []
    for path in directory.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if path.is_file():
            found.append(Entry(path, status.st_size, status.st_mtime))
    return found


def _bytes(entries: list[Entry]) -> int:
    return sum(entry.size for entry in entries)
