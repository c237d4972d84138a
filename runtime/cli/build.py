"""`dfc build`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from dfc.artifacts import ArtifactError
from dfc.plugins.user_cache import cache_directory
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.quantising import QuantisingRequest, quantisation, quantising_options

if TYPE_CHECKING:
    from dfc.compiler.build import Dtype


@dataclass
class StepsShown:
    """One line on a terminal: the step of a build, and what the engine library does in it."""

    show: Callable[[str], None]
    step: str = ""

    def begin(self, step: str) -> None:
        """Show a new step."""
        self.step = step
        self.show(escape(step))

    def go_on(self, detail: str) -> None:
        """Show how far the step is."""
        self.show(escape(f"{self.step}: {detail}"))


DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Build an artifact from checkpoints.")
@click.argument("target", type=DIRECTORY)
@click.option("--draft", "drafts", type=DIRECTORY, multiple=True, help="DFlash2 or DFlash drafter for TARGET.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Artifact directory to write.")
@click.option(
    "--backend",
    type=click.Choice(["onnxruntime", "tensorrt-rtx", "tensorrt"]),
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
    help="Most tokens drafted in a round.  [default: 7 for MTP, the drafter's block for the others]",
)
@click.option(
    "--compute-capability",
    "compute_capabilities",
    help="GPUs to build for, such as 8.9,12.0.  [default: all that the backend's library knows]",
)
@click.option("--workspace", type=click.IntRange(min=1), help="Megabytes of scratch memory an engine may plan with.")
@click.option("--opt-level", type=click.IntRange(0, 5), help="Builder's effort.  [default: the library's]")
@click.option("--no-cache", is_flag=True, help="Compile every stage, also those that an earlier build has left.")
@click.option("--no-mtp", is_flag=True, help="Leave out the MTP head of TARGET.")
@quantising_options
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
    compute_capabilities: str | None,
    workspace: int | None,
    opt_level: int | None,
    no_cache: bool,
    force: bool,
    no_mtp: bool,
    quantising: QuantisingRequest,
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
        from dfc.compiler.engines.backend import EngineOptions
        from dfc.compiler.errors import BuildError, OptionError
    except ImportError as error:
        raise click.ClickException(f"building needs {error.name}; install dfc with the extra 'build'") from error
    capabilities = tuple(part.strip() for part in (compute_capabilities or "").split(",") if part.strip())
    options = EngineOptions(capabilities, None if workspace is None else workspace << 20, opt_level)
    cache = None if no_cache else cache_directory("stages")
    console = Console(stderr=True, highlight=False)
    try:
        request = BuildRequest(
            target,
            drafts,
            output,
            backend,
            dtype,
            max_context,
            draft_tokens,
            options,
            force,
            cache,
            no_mtp,
            quantisation(quantising),
        )
        if console.is_terminal:
            with console.status("reading checkpoints") as status:
                shown = StepsShown(status.update)
                manifest = build_artifact(request, shown.begin, shown.go_on)
        else:
            manifest = build_artifact(request, lambda line: console.print(line, soft_wrap=True))
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except (ArtifactError, BuildError, CheckpointError) as error:
        raise click.ClickException(str(error)) from error
    size = sum(file.size for file in manifest.files.values())
    holds = ", ".join(manifest.components)
    console.print(f"built {output}: {holds}; {len(manifest.stages)} stages, {size / 1e6:.1f} MB", soft_wrap=True)
