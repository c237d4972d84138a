"""What `dfc push` and `dfc pull` share: places on the command line, and the connection to a registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dfc.artifacts.paths import printable
from dfc.artifacts.publishing.reference import SCHEME, Reference

if TYPE_CHECKING:
    from dfc.artifacts.publishing.registry import Repository

plain_http_option = click.option(
    "--plain-http",
    is_flag=True,
    help="Without TLS, for a registry on this machine: who is between can change everything.",
)


_PINNED = re.compile(r"(.+?)(?:@(sha256:[0-9a-f]{64}))?", re.DOTALL)


@dataclass(frozen=True)
class LocalPlace:
    """A tar file or directory, and the digest that what is in it must have."""

    path: Path
    digest: str | None = None


class PlaceType(click.ParamType["Reference | LocalPlace"]):
    """`oci://registry/repository` with a tag or a digest, or a tar file or, to read from, a directory."""

    name = "place"

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Reference | LocalPlace:
        """Parse the text of the command line."""
        if isinstance(value, Reference | LocalPlace):
            return value
        if value.startswith(SCHEME):
            try:
                return Reference.parse(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        shown = printable(repr(value))
        if not self._reads:
            if not value.endswith(".tar"):
                self.fail(f"{shown} is neither oci://REGISTRY/REPOSITORY:TAG nor a file that ends in .tar", param, ctx)
            return LocalPlace(Path(value))
        match = _PINNED.fullmatch(value)
        if match is None or not Path(match[1]).exists():
            self.fail(f"{shown} is neither oci://REGISTRY/REPOSITORY nor a file or directory that is there", param, ctx)
        return LocalPlace(Path(match[1]), match[2])


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
