"""The engine libraries, imported on first use: each is an extra that a machine may lack."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    # No package: tests/contracts makes stubs of this name from each library's bindings and checks all calls with them.
    from engine_library import Library


class MissingLibraryError(Exception):
    """A library is not installed or cannot start; the message says which extra brings it."""


def tensorrt_rtx() -> Library:
    """Return the module of TensorRT-RTX's bindings.

    Raises:
        MissingLibraryError: it is not installed or cannot be loaded.
    """
    try:
        # The bindings find the libraries only after this has loaded them.
        importlib.import_module("tensorrt_rtx_libs")
        return cast("Library", importlib.import_module("tensorrt_rtx_bindings"))
    except (ImportError, OSError) as error:
        raise MissingLibraryError(f"TensorRT-RTX is missing ({error}); install dfc with the extra 'rtx'") from error


def tensorrt() -> Library:
    """Return the module of TensorRT's bindings.

    Raises:
        MissingLibraryError: it is not installed or cannot be loaded.
    """
    try:
        return cast("Library", importlib.import_module("tensorrt"))
    except (ImportError, OSError) as error:
        raise MissingLibraryError(f"TensorRT is missing ({error}); install dfc with the extra 'tensorrt'") from error


def named_capabilities(library: Library) -> tuple[str, ...]:
    """Return the compute capabilities, such as "8.9", that TensorRT-RTX can be told to build for."""
    names = (name[2:] for name in library.ComputeCapability.__members__ if name.startswith("SM"))
    return tuple(f"{digits[:-1]}.{digits[-1]}" for digits in names)
