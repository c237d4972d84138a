"""`dfc operators`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from dfc.artifacts import ArtifactError, open_artifact
from dfc.runtime.cli.build import DIRECTORY
from dfc.runtime.cli.options import debug_option
from dfc.runtime.engines.onnxruntime_graph import write_session_graph
from dfc.runtime.errors import RunError


@click.command(short_help="Show which operators stages use and how backends take them.", hidden=True)
@click.argument("target", type=DIRECTORY)
@click.option("--draft", "drafts", type=DIRECTORY, multiple=True, help="DFlash2 or DFlash drafter for TARGET.")
@debug_option
def operators(target: Path, drafts: tuple[Path, ...]) -> None:
    """Print, as Markdown, every operator of the stages of TARGET and its drafters, and how each backend takes it.

    onnxruntime and TensorRT-RTX must be installed: their own sessions and parser are asked.
    """
    try:
        click.echo(describe(target, drafts), nl=False)
    except ImportError as error:
        raise click.ClickException(
            f"this needs {error.name}; install dfc with the extras 'build', 'cpu' and 'rtx'"
        ) from error
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error


def describe(target: Path, drafts: tuple[Path, ...]) -> str:
    """Return the table of operators."""
    import onnx

    from dfc.compiler.build import BuildRequest, build_artifact, plan_build
    from dfc.compiler.checkpoint import CheckpointError
    from dfc.compiler.engines import tensorrt_rtx
    from dfc.compiler.errors import BuildError
    from dfc.compiler.operators import onnxruntime_use, stage_operators, tensorrt_rtx_use, tensorrt_use
    from dfc.compiler.operators_table import operators_table

    with tempfile.TemporaryDirectory() as folder:
        try:
            dynamic = BuildRequest(target, drafts, Path(folder) / "artifact")
            static = BuildRequest(target, drafts, Path(folder), "tensorrt-rtx", max_context=1024)
            plan, static_plan = plan_build(dynamic), plan_build(static)
            build_artifact(dynamic)
            artifact = open_artifact(dynamic.output)
            graphs = []
            for name, stage in artifact.manifest.stages.items():
                engine = stage.engines["onnxruntime"][0].path
                file = Path(folder) / f"{name}.onnx"
                write_session_graph(artifact, engine, file, optimized=False)
                loaded = (onnx.load(path, load_external_data=False) for path in (artifact.path(engine), file))
                graphs.append((next(loaded), next(loaded)))
            uses = (
                onnxruntime_use(plan, graphs),
                tensorrt_rtx_use(static_plan, tensorrt_rtx.load_library()),
                tensorrt_use(static_plan),
            )
        except (BuildError, CheckpointError) as error:
            raise click.ClickException(str(error)) from error
        return operators_table(stage_operators(plan), uses)
