"""Manifests of earlier major versions of the schema, read as the present one.

A new major version is for a change that old content does not fit: raise `SCHEMA_VERSION`, add one step here, and keep a
manifest of the old version in `tests/artifacts/manifests`. A new optional field needs neither: its default is what the
artifacts without it mean.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

SCHEMA_VERSION: Final = 3

Document = dict[str, Any]


def _from_1(document: Document) -> Document:
    """Version 1 wrote `calibration` without ever filling it."""
    if not document.get("calibration"):
        document.pop("calibration", None)
    return document


def _from_2(document: Document) -> Document:
    """Version 2 had numbers without a device in `calibration`, which no dfc wrote and none can use."""
    calibration = document.get("calibration")
    if isinstance(calibration, dict) and all(isinstance(value, int | float) for value in calibration.values()):
        del document["calibration"]
    return document


STEPS: Mapping[int, Callable[[Document], Document]] = {1: _from_1, 2: _from_2}
"""What makes a document of each version one of the next; the document is a copy and need not be a valid one."""


def migrate(document: Mapping[str, Any], version: int) -> Document:
    """Return a manifest's JSON object of an earlier version as one of the present version.

    Raises:
        KeyError: there is no step from `version`.
    """
    migrated = dict(document)
    while version != SCHEMA_VERSION:
        migrated = STEPS[version](migrated)
        version += 1
    return {**migrated, "schema_version": version}
