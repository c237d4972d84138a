"""Lists of layers, as the published formats write those that they leave alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

from dfc.compiler.checkpoint.fields import Fields


class Patterns:
    """Names of modules: whole dotted parts of one, shell patterns with ``*``, regular expressions after ``re:``.

    Raises:
        ValueError: a regular expression is none; the message says which.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)
        self._expressions = []
        for text in self._texts:
            try:
                if text.startswith("re:"):
                    self._expressions.append(re.compile(text.removeprefix("re:")))
            except re.error as error:
                raise ValueError(f"{text!r}, which is no regular expression: {error}") from None

    def match(self, module: str) -> bool:
        """Return whether a module, or one that it is part of, is named."""
        return any(pattern.match(module) for pattern in self._expressions) or _named(self._texts, module)


def read_patterns(fields: Fields, name: str) -> Patterns:
    """Read a list of a config; without it nothing is named.

    Raises:
        CheckpointError: it holds something else.
    """
    try:
        return Patterns(fields.texts(name, ()))
    except ValueError as error:
        raise fields.error(name, f"holds {error}") from None


def _named(texts: Iterable[str], module: str) -> bool:
    dotted = f".{module}."
    for text in texts:
        if text.startswith("re:"):
            continue
        if "*" in text and any(fnmatch.fnmatchcase(name, text) for name in (module, f"{module}.")):
            return True
        # "mlp.gate" is no part of "mlp.gate_proj".
        if f".{text.strip('.')}." in dotted:
            return True
    return False
