"""Where an artifact lies in a registry, as one writes it."""

import re
from dataclasses import dataclass
from typing import Self

from dfc.artifacts.paths import printable

SCHEME = "oci://"

_FORM = re.compile(
    r"""oci://
    (?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?)
    /(?P<repository>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)
    (?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})|@(?P<digest>sha256:[0-9a-f]{64}))?""",
    re.VERBOSE,
)
_MAX_LENGTH = 1024


@dataclass(frozen=True)
class Reference:
    """A parsed reference: `tag` or `digest` (`sha256:` and 64 hex digits), at most one of them."""

    host: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `oci://host[:port]/repository[:tag|@sha256:digest]`.

        Raises:
            ValueError: it is not written so; the message is a sentence.
        """
        match = _FORM.fullmatch(text) if len(text) <= _MAX_LENGTH else None
        if match is None:
            raise ValueError(
                f"{printable(text)!r} is not oci://registry/repository, in small letters, with :tag or "
                "@sha256:digest (64 digits) behind it"
            )
        return cls(match["host"], match["repository"], match["tag"], match["digest"])

    def pinned(self, digest: str) -> str:
        """Return the reference, as text, that means these bytes for ever."""
        return f"{SCHEME}{self.host}/{self.repository}@{digest}"

    def __str__(self) -> str:
        end = f"@{self.digest}" if self.digest else f":{self.tag}" if self.tag else ""
        return f"{SCHEME}{self.host}/{self.repository}{end}"
