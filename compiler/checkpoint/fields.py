"""Typed access to the fields of a JSON config; every complaint names the file and the field."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfc.compiler.checkpoint.errors import CheckpointError

_ABSENT = object()

_MAX_INTEGER = 2**31 - 1
_MAX_NUMBER = sys.float_info.max


class Fields:
    """The fields of one JSON object. A field that is null counts as absent."""

    def __init__(self, file: Path, values: Mapping[str, Any], prefix: str = "") -> None:
        self.file = file
        self._values = values
        self._prefix = prefix

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Every field that is there."""
        return tuple(name for name in self._values if name in self)

    def path(self, name: str) -> str:
        """Return the field's full name."""
        return f"{self._prefix}{name}"

    def error(self, name: str, problem: str) -> CheckpointError:
        """Return an error about one field."""
        return CheckpointError(f"{self.file}: {self.path(name)} {problem}")

    def section(self, name: str) -> Fields:
        """Return the fields of a nested object; an absent one is empty."""
        value = self._values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, f"is {_shown(value)}, where an object is wanted")
        return Fields(self.file, value, f"{self.path(name)}.")

    def first(self, name: str, fallback: Fields) -> Fields:
        """Return these fields if they hold `name`, else the fallback."""
        return self if name in self else fallback

    def integer(self, name: str, default: object = _ABSENT, *, least: int = 1, most: int = _MAX_INTEGER) -> int:
        """Return a whole number from `least` to `most`."""
        value = self._get(name, default)
        if type(value) is not int:
            raise self.error(name, f"is {_shown(value)}, where a whole number is wanted")
        if name in self and value < least:
            raise self.error(name, f"is {_shown(value)}, where at least {least} is wanted")
        if name in self and value > most:
            raise self.error(name, f"is {_shown(value)}, where at most {most} is wanted")
        return value

    def number(self, name: str, default: object = _ABSENT) -> float:
        """Return a finite number."""
        value = self._get(name, default)
        # A whole number past the range of floats cannot even be asked whether it is finite.
        if type(value) not in (int, float) or not abs(value) <= _MAX_NUMBER:
            raise self.error(name, f"is {_shown(value)}, where a number is wanted")
        return float(value)

    def positive(self, name: str, default: object = _ABSENT) -> float:
        """Return a finite number above zero."""
        value = self.number(name, default)
        if value <= 0:
            raise self.error(name, f"is {value:g}, where a number above 0 is wanted")
        return value

    def boolean(self, name: str, default: object = _ABSENT) -> bool:
        """Return true or false."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"is {_shown(value)}, where true or false is wanted")
        return value

    def text_or_flag(self, name: str, default: object = _ABSENT) -> str | bool:
        """Return a string, or true or false."""
        value = self._get(name, default)
        if not isinstance(value, str | bool):
            raise self.error(name, f"is {_shown(value)}, where a string or true or false is wanted")
        return value

    def text(self, name: str, default: object = _ABSENT) -> str:
        """Return a string."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"is {_shown(value)}, where a string is wanted")
        return value

    def texts(self, name: str, default: object = _ABSENT) -> tuple[str, ...]:
        """Return a list of strings."""
        value = self._get(name, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"is {_shown(value)}, where a list of strings is wanted")
        return tuple(value)

    def integers(self, name: str, default: object = _ABSENT) -> tuple[int, ...]:
        """Return a list of whole numbers; one number stands for a list of one."""
        value = self._get(name, default)
        items = [value] if type(value) is int else value
        if not isinstance(items, list | tuple) or not all(type(item) is int for item in items):
            raise self.error(name, f"is {_shown(value)}, where a list of whole numbers is wanted")
        return tuple(items)

    def require(self, name: str, wanted: object, default: object = _ABSENT) -> None:
        """Refuse any value but `wanted`: dfc builds that one only."""
        value = self._get(name, default)
        if value != wanted or type(value) is not type(wanted):
            raise self.error(name, f"is {_shown(value)}; only {_shown(wanted)} is supported")

    def refuse(self, name: str, reason: str) -> None:
        """Refuse a field that is set to anything but false, none or nothing."""
        value = self._values.get(name)
        if value not in (None, False, [], {}):
            raise self.error(name, reason)

    def _get(self, name: str, default: object) -> Any:
        value = self._values.get(name)
        if value is not None:
            return value
        if default is _ABSENT:
            raise CheckpointError(f"{self.file} has no field {self.path(name)}")
        return default


def read_fields(file: Path) -> Fields:
    """Read a JSON object.

    Raises:
        CheckpointError: the file is missing, unreadable or not a JSON object.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{file.parent} is not a checkpoint directory: it has no {file.name}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} does not hold a JSON object")
    return Fields(file, content)


def _shown(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
