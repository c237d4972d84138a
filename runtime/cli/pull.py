"""`dfc pull`."""

from __future__ import annotations

from pathlib import Path

import click

from dfc.artifacts import ArtifactError, check_replaceable
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.local import receive
from dfc.artifacts.publishing.pull import pull as pull_artifact
from dfc.artifacts.publishing.reference import Reference
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.registry import LocalPlace, PlaceType, connect, plain_http_option


@click.command(short_help="Fetch an artifact from a registry, a tar file or a directory.")
@click.argument("place", type=PlaceType(reads=True), metavar="oci://REGISTRY/REPOSITORY|FILE.tar|DIRECTORY")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Where the artifact is put.")
@click.option("--force", is_flag=True, help="Replace an artifact that is already there.")
@plain_http_option
@debug_option
def pull(place: Reference | LocalPlace, output: Path, force: bool, plain_http: bool) -> None:
    """Fetch an artifact from a registry, check everything in it as `dfc verify` does, and put it into place.

    The place may end in :TAG (of a registry, `latest` when none is given) or in @sha256:DIGEST, and anything else than
    exactly that is then refused. A pull from a registry that was cut goes on where it stopped. A tar file must be as
    `dfc push` writes it. Standard output gets the place with the digest of what was pulled.
    """
    if isinstance(place, LocalPlace) and plain_http:
        raise click.UsageError("--plain-http means nothing to a tar file or a directory; leave it out")

    def waiting() -> None:
        click.echo(f"waiting for another process that writes {output}", err=True)

    try:
        check_replaceable(output, force=force)
        if isinstance(place, Reference):
            repository = connect(place, plain_http)
            with hashing_progress("fetching") as progress:
                pinned = place.pinned(
                    pull_artifact(place, repository, output, force=force, waiting=waiting, progress=progress)
                )
        else:
            with hashing_progress() as progress:
                digest = receive(
                    place.path, output, digest=place.digest, force=force, waiting=waiting, progress=progress
                )
            pinned = f"{place.path}@{digest}"
    except (ArtifactError, PublishingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"pulled {output}", err=True)
    click.echo(pinned)
