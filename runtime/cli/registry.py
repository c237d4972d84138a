"""What `dfc push` and `dfc pull` share: references on the command line, and the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dfc.artifacts.publishing.reference import Reference

if TYPE_CHECKING:
    from dfc.artifacts.publishing.registry import Repository

plain_http_option = click.option(
    "--plain-http",
    is_flag=True,
    help="Without TLS, for a registry on this machine: who is between can change everything.",
)


class ReferenceType(click.ParamType[Reference]):
    """`oci://registry/repository`, with a tag or a digest."""

    name = "reference"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Reference:
        """Parse the text of the command line."""
        if isinstance(value, Reference):
            return value
        try:
            return Reference.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def connect(reference: Reference, plain_http: bool) -> Repository:
    """Connect to the registry of a reference.

    Raises:
        click.ClickException: the library for it is not installed.
        PublishingError: the registry cannot be reached.
    """
    try:
        # Other commands need not load it.
        from dfc.artifacts.publishing.registry import Repository
    except ImportError as error:
        raise click.ClickException(f"registries need {error.name}; install dfc with the extra 'publish'") from None
    return Repository(reference, plain_http=plain_http)
