"""`dfc sign`."""

from __future__ import annotations

from pathlib import Path

import click

from dfc.artifacts import ArtifactError
from dfc.artifacts.paths import SIGNATURE_NAME, printable
from dfc.artifacts.signature import write_signature
from dfc.artifacts.verification import examine
from dfc.runtime.cli.checking import hashing_progress
from dfc.runtime.cli.options import debug_option


@click.command(short_help="Sign an artifact.")
@click.argument("artifact", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--key", type=click.Path(exists=True, path_type=Path), required=True, help="Ed25519 private key, a PEM file."
)
@debug_option
def sign(artifact: Path, key: Path) -> None:
    """Check ARTIFACT as `dfc verify` does and write a signature of its manifest into it.

    The manifest has the digest of every other file, so `dfc verify --key` with the public key shows that all of them
    are what the owner of the key has signed.
    """
    try:
        with hashing_progress() as progress:
            # The signature itself is what this command replaces.
            findings = [finding for finding in examine(artifact, progress) if finding.name != SIGNATURE_NAME]
        for finding in findings:
            if finding.problem is not None:
                raise click.ClickException(f"{artifact} is not signed: {printable(finding.name)} {finding.problem}")
        write_signature(artifact, key)
    except ArtifactError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"signed {artifact}: {SIGNATURE_NAME}", err=True)
