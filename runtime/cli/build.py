"""`dfc build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from dfc.artifacts import ArtifactError
from dfc.runtime.cli.options import debug_option

if TYPE_CHECKING:
    from dfc.compiler.build import Dtype

DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Build an artifact from checkpoints.")
@click.argument("target", type=DIRECTORY)
@click.option("--draft", "drafts", type=DIRECTORY, multiple=True, help="Checkpoint of a drafter made for TARGET.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Artifact directory to write.")
@click.option(
    "--backend",
    type=click.Choice(["onnxruntime"]),
    default="onnxruntime",
    show_default=True,
    help="Library the engines are for.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="Precision of the computation; auto takes the best one of the backend.",
)
@click.option(
    "--max-context",
    type=click.IntRange(min=2),
    help="Most tokens of prompt and answer together.  [default: the model's, at most 32768]",
)
@click.option(
    "--draft-tokens",
    type=click.IntRange(min=1),
    help="Most tokens drafted in a round.  [default: 7 for MTP, the drafter's block for DFlash2]",
)
@click.option("--force", is_flag=True, help="Replace an artifact that is already there.")
@debug_option
def build(
    target: Path,
    drafts: tuple[Path, ...],
    output: Path,
    backend: str,
    dtype: Dtype,
    max_context: int | None,
    draft_tokens: int | None,
    force: bool,
) -> None:
    """Build an artifact from the Hugging Face checkpoint directory TARGET and its drafters.

    TARGET is a Qwen3.5-class model (alone or inside its vision wrapper); its MTP head, when it has one, becomes a
    drafter of the artifact. Weights are not copied: the artifact holds hard links to the checkpoint's files where the
    filesystem allows. The artifact appears whole at its place or not at all, and the same input always gives the same
    bytes.
    """
    try:
        from dfc.compiler.build import BuildRequest, build_artifact
        from dfc.compiler.checkpoint import CheckpointError
        from dfc.compiler.errors import BuildError
    except ImportError as error:
        raise click.ClickException(f"building needs {error.name}; install dfc with the extra 'build'") from error
    request = BuildRequest(target, drafts, output, backend, dtype, max_context, draft_tokens, force)
    console = Console(stderr=True, highlight=False)
    try:
        if console.is_terminal:
            with console.status("reading checkpoints") as status:
                manifest = build_artifact(request, status.update)
        else:
            manifest = build_artifact(request, lambda line: console.print(line, soft_wrap=True))
    except (ArtifactError, BuildError, CheckpointError) as error:
        raise click.ClickException(str(error)) from error
    size = sum(file.size for file in manifest.files.values())
    holds = ", ".join(manifest.components)
    console.print(f"built {output}: {holds}; {len(manifest.stages)} stages, {size / 1e6:.1f} MB", soft_wrap=True)
