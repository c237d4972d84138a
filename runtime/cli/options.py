"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def debug_option(command: Decorated) -> Decorated:
    """Add `--debug`, which the entry point looks for when a command fails."""
    decorate = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show a traceback when the command fails."
    )
    return decorate(command)
