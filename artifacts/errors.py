"""The one exception of the artifact format."""

import contextlib
from collections.abc import Iterator


class ArtifactError(Exception):
    """An artifact cannot be written, opened or trusted; the message is one sentence for the user."""


@contextlib.contextmanager
def reporting(failure: str) -> Iterator[None]:
    """Say of an `OSError` within that `failure` happened, and why."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"{failure}: {error.strerror or error}") from error
