"""`dfc inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dfc.artifacts import Artifact, ArtifactError, open_artifact
from dfc.artifacts.sbom import write_sbom
from dfc.runtime.cli.calibration_table import print_calibration
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.engines import choose_backend
from dfc.runtime.errors import RunError
from dfc.runtime.plan import RunContext, SpeculationPlan, SpeculationRequest, resolve


@click.command(short_help="Show what an artifact holds.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the manifest and the resolved speculation as one object.")
@click.option("--sbom", is_flag=True, help="Print an SPDX 2.3 document: files, checkpoints, tools and libraries.")
@debug_option
def inspect(artifact: Path, as_json: bool, sbom: bool) -> None:
    """Show what ARTIFACT holds, and what `dfc run` would choose with --spec auto.

    With --sbom, every file is read. The document's date is SOURCE_DATE_EPOCH when that is set.
    """
    if as_json and sbom:
        raise click.UsageError("--json and --sbom are two documents; give one of them")
    try:
        opened = open_artifact(artifact)
        if sbom:
            with hashing_progress() as progress:
                document = write_sbom(opened, progress=progress)
            click.echo(document, nl=False)
            return
        plan = resolve(SpeculationRequest(), opened.manifest, RunContext(choose_backend(opened)))
    except (ArtifactError, RunError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        described = json.loads(opened.manifest.to_json())
        described["speculation"] = plan.describe()
        click.echo(json.dumps(described, indent=2))
    else:
        _print_tables(opened, plan)


def _print_tables(artifact: Artifact, plan: SpeculationPlan) -> None:
    manifest = artifact.manifest
    console = Console(highlight=False)
    model = manifest.model
    console.print(
        f"{model.name}: {model.architecture}, {model.num_layers} layers, hidden size {model.hidden_size},"
        f" vocabulary {model.vocab_size}, context {model.max_context}, {manifest.precision}"
    )
    console.print(f"speculation: {plan.speculation}, {plan.draft_tokens} draft tokens ({plan.reason})")
    components = Table("component", "source", "parameters")
    for name, component in manifest.components.items():
        parameters = ", ".join(f"{key} {value}" for key, value in component.parameters.items())
        components.add_row(name, component.source, parameters)
    console.print(components)
    stages = Table("stage", "component", "backends", "bytes", "inputs", "outputs")
    for stage_name, stage in manifest.stages.items():
        size = sum(manifest.files[engine.path].size for engines in stage.engines.values() for engine in engines)
        stages.add_row(
            stage_name,
            stage.component,
            ", ".join(stage.engines),
            str(size),
            str(len(stage.inputs)),
            str(len(stage.outputs)),
        )
    console.print(stages)
    for device, calibration in manifest.calibration.items():
        print_calibration(console, device, calibration)
    weights = sum(file.size for path, file in manifest.files.items() if path.startswith("weights/"))
    console.print(f"{len(manifest.files)} files, {weights / 1e6:.1f} MB of weights")
