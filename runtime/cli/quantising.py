"""How a build stores weights, from the command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from dfc.runtime.cli.options import option_group

if TYPE_CHECKING:
    from dfc.compiler.quantising import Choice, Integers, Quantisation

_CHOICE = click.Choice(["none", "int4", "int8"])


@dataclass(frozen=True)
class QuantisingRequest:
    """The options as given."""

    quantize: Integers | None
    quantize_head: Choice | None
    quantize_embedding: Choice | None
    quantize_drafters: Choice | None
    quantize_group: int | None
    keep: tuple[str, ...]


quantising_options = option_group(
    "quantising",
    QuantisingRequest,
    click.option(
        "--quantize",
        type=click.Choice(["int4", "int8"]),
        help="Round TARGET's weights to integers.",
    ),
    click.option("--quantize-head", type=_CHOICE, help="The same for the output head.  [default: none]"),
    click.option("--quantize-embedding", type=_CHOICE, help="The same for a separate embedding.  [default: none]"),
    click.option("--quantize-drafters", type=_CHOICE, help="The same for the MTP head of TARGET.  [default: none]"),
    click.option(
        "--quantize-group",
        type=click.Choice(["16", "32", "64", "128"]),
        callback=lambda context, parameter, value: None if value is None else int(value),
        help="Columns that share a scale.  [default: 32]",
    ),
    click.option(
        "--keep",
        multiple=True,
        help="Leave layers as they are: part of a name, a pattern with *, or re: and an expression.",
    ),
)


def quantisation(request: QuantisingRequest) -> Quantisation | None:
    """Return what was asked for, None for weights as they are.

    Raises:
        OptionError: a pattern is none.
        click.UsageError: an option has no effect.
    """
    from dfc.compiler.quantising import Quantisation

    if request.quantize is None:
        for field in fields(request):
            if getattr(request, field.name):
                flag = "--" + field.name.replace("_", "-")
                raise click.UsageError(f"{flag} has no effect without --quantize; add it or leave {flag} out")
        return None
    given = {
        "head": request.quantize_head,
        "embedding": request.quantize_embedding,
        "drafters": request.quantize_drafters,
        "group_size": request.quantize_group,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return Quantisation(request.quantize, keep=request.keep, **chosen)  # type: ignore[arg-type]
