"""`dfc pull`."""

from __future__ import annotations

from pathlib import Path

import click

from dfc.artifacts import ArtifactError, check_replaceable
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.pull import pull as pull_artifact
from dfc.artifacts.publishing.reference import Reference
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.registry import ReferenceType, connect, plain_http_option


@click.command(short_help="Fetch an artifact from a registry.")
@click.argument("reference", type=ReferenceType(), metavar="oci://REGISTRY/REPOSITORY[:TAG|@sha256:DIGEST]")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Where the artifact is put.")
@click.option("--force", is_flag=True, help="Replace an artifact that is already there.")
@plain_http_option
@debug_option
def pull(reference: Reference, output: Path, force: bool, plain_http: bool) -> None:
    """Fetch an artifact from a registry, check everything in it as `dfc verify` does, and put it into place.

    The tag is `latest` when none is given. With a digest, anything else than exactly that is refused. A pull that was
    cut goes on where it stopped. Standard output gets the reference with the digest of what was pulled.
    """
    try:
        check_replaceable(output, force=force)
        repository = connect(reference, plain_http)
        with hashing_progress("fetching") as progress:
            digest = pull_artifact(
                reference,
                repository,
                output,
                force=force,
                waiting=lambda: click.echo(f"waiting for another process that writes {output}", err=True),
                progress=progress,
            )
    except (ArtifactError, PublishingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"pulled {output}", err=True)
    click.echo(reference.pinned(digest))
