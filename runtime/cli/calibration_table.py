"""A calibration as tables, for `dfc tune` and `dfc inspect`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dfc.artifacts import Calibration
from dfc.runtime.benchmark import way_name


def print_calibration(console: Console, device: str, calibration: Calibration) -> None:
    """Print times of rounds, acceptance and thresholds."""
    console.print(f"calibration of {escape(device)} ({calibration.library} {calibration.library_version})")
    table = Table("ms a round at", *map(str, calibration.contexts))
    for entry in calibration.rounds:
        table.add_row(
            way_name(entry.drafter, entry.draft_tokens), *(f"{seconds * 1e3:.2f}" for seconds in entry.seconds)
        )
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
    for drafter, shares in calibration.acceptance.items():
        console.print(f"{drafter}: acceptance by position {' '.join(f'{share:.0%}' for share in shares)}")
    policy = Table("up to", "decoding", "expected tokens/s")
    for threshold in calibration.thresholds:
        end = "any length" if threshold.below is None else f"{threshold.below} tokens"
        name = way_name(threshold.drafter, threshold.draft_tokens)
        policy.add_row(end, name, f"{threshold.tokens_per_second:.0f}")
    console.print(policy)
