"""`dfc verify --against`: the artifact's behaviour beside its source checkpoint's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dfc.artifacts import Artifact, open_artifact
from dfc.runtime.comparison import (
    Check,
    artifact_logits,
    compare_drafter,
    compare_greedy,
    compare_logits,
    greedy_tokens,
)
from dfc.runtime.drafters import KINDS
from dfc.runtime.errors import RunError
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.text import load_codec

PROMPTS = (
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "import json\n\ndef read(path):\n    with open(path) as file:\n        return json.",
    "The river rises in the hills and runs through three towns before it reaches the sea. In spring",
    "A list of steps to make tea: first boil the water, then",
)
"""Code and prose; `--prompts` gives others."""

ANSWER_TOKENS = 32
TOLERANCE = 1e-3
MOST_PROMPT_TOKENS = 512


def compare(root: Path, checkpoint: Path, prompts_file: Path | None, tolerance: float | None) -> tuple[Check, ...]:
    """Return every check of the artifact at `root` against `checkpoint`.

    Without a tolerance, logits and tokens of a build that rounded the weights are measured and not judged.

    Raises:
        ArtifactError: the artifact cannot be opened.
        click.ClickException: the compiler's extras are missing, or the checkpoint cannot be loaded.
        RunError: the artifact cannot run here.
    """
    try:
        from dfc.compiler.errors import BuildError
        from dfc.compiler.reference import open_reference, with_logits
    except ImportError as error:
        raise click.ClickException(
            f"--against needs the compiler ({error}); install dfc with the extras 'build' and 'reference'"
        ) from error
    artifact = open_artifact(root)
    if tolerance is None and "quantize" not in artifact.manifest.build.options:
        tolerance = TOLERANCE
    prompts = encode_prompts(artifact, read_prompts(prompts_file), ANSWER_TOKENS)
    try:
        ours, reference = artifact_logits(artifact, with_logits), open_reference(checkpoint)
    except BuildError as error:
        raise click.ClickException(str(error)) from error
    checks = list(compare_logits(ours, reference, prompts, tolerance))
    answers = greedy_tokens(artifact, prompts, ANSWER_TOKENS)
    checks.append(compare_greedy(reference, prompts, answers, tolerance))
    for kind in KINDS:
        if kind in {str(name) for name in artifact.manifest.components}:
            plan = resolve(SpeculationRequest(kind), artifact.manifest, RunContext("onnxruntime"))
            checks.extend(compare_drafter(artifact, plan, prompts, answers))
    return tuple(checks)


def print_checks(checks: Sequence[Check]) -> None:
    """Print the comparison as one table on standard output."""
    table = Table("against the source", "measured", "at most", "result")
    results = {True: "passed", False: "FAILED", None: "measured"}
    for check in checks:
        style = "red" if check.passed is False else None
        table.add_row(escape(check.name), check.value, check.limit, results[check.passed], style=style)
    Console(highlight=False).print(table)


def read_prompts(file: Path | None) -> Sequence[str]:
    """Return the lines of a file, or the bundled prompts.

    Raises:
        click.ClickException: the file cannot be read or holds nothing.
    """
    if file is None:
        return PROMPTS
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"--prompts {file} cannot be read as UTF-8 text: {error}") from error
    if not lines:
        raise click.ClickException(f"--prompts {file} holds no prompt; write one on each line")
    return lines


def encode_prompts(artifact: Artifact, texts: Sequence[str], answer_tokens: int) -> list[list[int]]:
    """Return the tokens of texts, cut so that `answer_tokens` fit behind them.

    Raises:
        RunError: the artifact has no tokenizer, or a text is too short to predict anything in.
    """
    codec = load_codec(artifact)
    if codec is None:
        raise RunError(
            f"{artifact.root} has no tokenizer, so no text can be compared; build it from a checkpoint with one"
        )
    room = artifact.manifest.model.max_context - answer_tokens - 32
    prompts = [codec.encode(text)[: min(MOST_PROMPT_TOKENS, room)] for text in texts]
    if any(len(prompt) < 2 for prompt in prompts):
        raise RunError("a prompt has fewer than two tokens, so nothing in it can be predicted; use longer ones")
    return prompts
