"""Trains the reference checkpoints: a small Qwen3.5 target, its MTP head and a DFlash2 drafter.

Three stages, each from the files of the one before it; a stage whose result is there is not run again:

    train.py corpus OUTPUT
    train.py target OUTPUT
    train.py drafters OUTPUT
"""

from __future__ import annotations

from pathlib import Path

import click
import torch
from training.corpus import TOKENS_FILE, make_corpus
from training.drafters import train_drafters
from training.scale import FULL, SMOKE, Scale
from training.schedule import Budget
from training.target import train_target


class Stage:
    """Paths and settings that every stage shares."""

    def __init__(self, output: Path, smoke: bool) -> None:
        self.scale: Scale = SMOKE if smoke else FULL
        self.device = "cuda" if torch.cuda.is_available() and not smoke else "cpu"
        self.corpus, self.target, self.dflash2 = (output / name for name in ("corpus", "target", "dflash2"))

    def needs(self, result: Path) -> bool:
        if result.exists():
            click.echo(f"{result} is there; remove it to run this stage again")
        return not result.exists()

    def requires(self, result: Path, stage: str) -> None:
        if not result.exists():
            raise click.ClickException(f"{result} is missing: run `train.py {stage}` first")


output_argument = click.argument("output", type=click.Path(file_okay=False, path_type=Path))
smoke_option = click.option("--smoke", is_flag=True, help="Tiny sizes on the CPU, to see that everything runs.")
steps_option = click.option("--steps", type=click.IntRange(min=1), help="Train this many steps, whatever they take.")


@click.group()
def main() -> None:
    """Train the reference checkpoints."""
    torch.backends.cuda.matmul.allow_tf32 = True


@main.command()
@output_argument
@smoke_option
def corpus(output: Path, smoke: bool) -> None:
    """Collect Python sources of this machine, train the tokenizer and encode them."""
    stage = Stage(output, smoke)
    if stage.needs(stage.corpus / TOKENS_FILE):
        make_corpus(stage.corpus, stage.scale)


@main.command()
@output_argument
@click.option("--seconds", default=1500.0, show_default=True, help="Training time; the steps follow from the pace.")
@steps_option
@smoke_option
def target(output: Path, seconds: float, steps: int | None, smoke: bool) -> None:
    """Train the target."""
    stage = Stage(output, smoke)
    stage.requires(stage.corpus / TOKENS_FILE, "corpus")
    if stage.needs(stage.target / "tokenizer.json"):
        train_target(stage.target, stage.corpus, stage.scale, Budget(seconds, steps), stage.device)


@main.command()
@output_argument
@click.option("--seconds", default=1500.0, show_default=True, help="Training time; the steps follow from the pace.")
@steps_option
@smoke_option
def drafters(output: Path, seconds: float, steps: int | None, smoke: bool) -> None:
    """Train the MTP head and the DFlash2 drafter on the frozen target."""
    stage = Stage(output, smoke)
    stage.requires(stage.target / "tokenizer.json", "target")
    if stage.needs(stage.dflash2 / "config.json"):
        budget = Budget(seconds, steps)
        train_drafters(stage.dflash2, stage.target, stage.corpus, stage.scale, budget, stage.device)


if __name__ == "__main__":
    main()
