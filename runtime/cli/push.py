"""`dfc push`."""

from __future__ import annotations

from pathlib import Path

import click

from dfc.artifacts import ArtifactError, open_artifact
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.push import push as push_artifact
from dfc.artifacts.publishing.reference import Reference
from dfc.runtime.cli.checking import check_on_load, hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.registry import ReferenceType, connect, plain_http_option


@click.command(short_help="Send an artifact to a registry.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.argument("reference", type=ReferenceType(), metavar="oci://REGISTRY/REPOSITORY:TAG")
@plain_http_option
@debug_option
def push(artifact: Path, reference: Reference, plain_http: bool) -> None:
    """Check ARTIFACT and send it to a registry, one layer for a file; layers that the registry has are not sent again.

    Standard output gets the reference with the digest of what was pushed, which means these bytes for ever. Logins are
    those of `docker login`.
    """
    if reference.tag is None:
        raise click.UsageError(f"{reference} has no tag; write oci://REGISTRY/REPOSITORY:TAG")
    try:
        opened = open_artifact(artifact)
        check_on_load(opened, opened.manifest.files)
        repository = connect(reference, plain_http)
        with hashing_progress("sending") as progress:
            pushed = push_artifact(opened, repository, reference.tag, progress)
    except (ArtifactError, PublishingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"pushed {artifact}: {pushed.files} files that were not there, {pushed.bytes} bytes", err=True)
    click.echo(reference.pinned(pushed.digest))
