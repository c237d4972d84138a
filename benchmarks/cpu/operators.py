"""Operator counts of ONNX graphs side by side: `python benchmarks/cpu/operators.py MODEL...`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import onnx
from rich.console import Console
from rich.table import Table


def count_operators(path: Path) -> Counter[str]:
    """Return how often the graph's top level has each operator, named with its domain unless that is ONNX's own."""
    graph = onnx.load(path, load_external_data=False).graph
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in graph.node)


@click.command()
@click.argument("models", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=-1, required=True)
def main(models: tuple[Path, ...]) -> None:
    """Print a table with a column for each of MODELS, the most frequent operators of the first one first."""
    counts = [count_operators(path) for path in models]
    # In an artifact the file is stages/STAGE/BACKEND/model.onnx: the stage is what tells columns apart.
    columns = [path.parents[1 if path.parents[2:] and path.parents[2].name == "stages" else 0].name for path in models]
    table = Table("operator")
    for column in columns:
        table.add_column(column, justify="right")
    order = sorted(set().union(*counts), key=lambda name: ([-count[name] for count in counts], name))
    for name in order:
        table.add_row(name, *(str(count[name] or "") for count in counts))
    table.add_section()
    table.add_row("all", *(str(count.total()) for count in counts))
    Console(width=max(Console().width, 40 + 18 * len(columns))).print(table)


if __name__ == "__main__":
    main()
