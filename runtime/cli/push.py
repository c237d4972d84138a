"""`dfc push`."""

from __future__ import annotations

from pathlib import Path

import click

from dfc.artifacts import Artifact, ArtifactError, open_artifact
from dfc.artifacts.publishing import tar
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.push import push as push_artifact
from dfc.artifacts.publishing.reference import Reference
from dfc.runtime.cli.checking import check_on_load, hashing_progress
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.registry import LocalPlace, PlaceType, connect, plain_http_option


@click.command(short_help="Send an artifact to a registry, or pack it into a tar file.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.argument("place", type=PlaceType(reads=False), metavar="oci://REGISTRY/REPOSITORY:TAG|FILE.tar")
@click.option("--force", is_flag=True, help="Replace a tar file that is already there.")
@plain_http_option
@debug_option
def push(artifact: Path, place: Reference | LocalPlace, force: bool, plain_http: bool) -> None:
    """Check ARTIFACT and send it to a registry, one layer for a file; layers that the registry has are not sent again.

    Standard output gets the reference with the digest of what was pushed, which means these bytes for ever. Logins are
    those of `docker login`.

    With FILE.tar it is packed into this file: equal artifacts give equal bytes, and the digest is that of a registry.
    """
    if isinstance(place, Reference) and place.tag is None:
        raise click.UsageError(f"{place} has no tag; write oci://REGISTRY/REPOSITORY:TAG")
    if isinstance(place, Reference) and force:
        raise click.UsageError("--force means nothing to a registry, where a tag is always moved; leave it out")
    if isinstance(place, LocalPlace) and plain_http:
        raise click.UsageError("--plain-http means nothing to a tar file; leave it out")
    try:
        if isinstance(place, LocalPlace):
            tar.check_writable(place.path, force=force)
        opened = open_artifact(artifact)
        check_on_load(opened, opened.manifest.files)
        pinned = _send(opened, place, plain_http) if isinstance(place, Reference) else _pack(opened, place.path, force)
    except (ArtifactError, PublishingError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(pinned)


def _send(artifact: Artifact, reference: Reference, plain_http: bool) -> str:
    assert reference.tag is not None
    repository = connect(reference, plain_http)
    with hashing_progress("sending") as progress:
        pushed = push_artifact(artifact, repository, reference.tag, progress)
    click.echo(f"pushed {artifact.root}: {pushed.files} files that were not there, {pushed.bytes} bytes", err=True)
    return reference.pinned(pushed.digest)


def _pack(artifact: Artifact, file: Path, force: bool) -> str:
    with hashing_progress("packing") as progress:
        digest = tar.pack(artifact, file, force=force, progress=progress)
    click.echo(f"packed {artifact.root} into {file}: {file.stat().st_size} bytes", err=True)
    return f"{file}@{digest}"
