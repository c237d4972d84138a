"""Options that several commands take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def debug_option(command: Decorated) -> Decorated:
    """Add `--debug`, which the entry point looks for when a command fails."""
    decorate = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show a traceback when the command fails."
    )
    return decorate(command)


def option_group(
    parameter: str, request: Callable[..., Any], *options: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `options` as one parameter: the dataclass `request`, whose fields have the options' names."""
    names = [field.name for field in fields(request)]  # type: ignore[arg-type]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def gathered(**given: Any) -> Any:
            values = {name: given.pop(name) for name in names}
            return command(**given, **{parameter: request(**values)})

        for option in reversed(options):
            gathered = option(gathered)
        return gathered

    return decorate
