"""What makes a build impossible."""

from collections.abc import Sequence


class BuildError(Exception):
    """The build cannot go on; the message is one sentence. `log` is what a library said on the way."""

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.log = tuple(log)


class OptionError(BuildError):
    """An option of the command line cannot be what it is; the message names its flag."""
