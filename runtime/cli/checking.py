"""Checking the contents of an artifact's files, with a bar on a terminal while it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from rich.console import Console

from dfc import artifacts
from dfc.artifacts import Artifact
from dfc.artifacts.verification import check_files
from dfc.plugins.user_cache import cache_directory


@contextlib.contextmanager
def hashing_progress(what: str = "checking files") -> Iterator[artifacts.Progress | None]:
    """Give what to call with the bytes done; standard error shows a bar when it is a terminal, else nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    # A run that shows no bar need not load what draws it.
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def check_on_load(artifact: Artifact, names: Iterable[str]) -> None:
    """Check files of an artifact that a run is about to read; those found sound before are not read again.

    Raises:
        ArtifactError: one is damaged.
    """
    with hashing_progress() as progress:
        check_files(artifact, names, cache_directory("verified"), progress)


def skip_check(artifact: Artifact, names: Iterable[str]) -> None:
    """Check nothing."""
