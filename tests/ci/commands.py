"""The `dfc` commands in scripts, read with the command line's own parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from dfc.runtime.cli.main import cli

_ARRAY = re.compile(r"(\w+)\+?=\(([^)]+)\)")
_EXPANSION = re.compile(r"\$\{(\w+)\[@\]\}")
_ENDS = {"|", "||", "&&", ";", ">", ">>", "&"}


def find_commands(script: str) -> Iterator[list[str]]:
    """Yield the words behind `dfc` of every command, what an array may hold in the array's place."""
    script = re.sub(r"\$\{\{.*?\}\}", "$EXPRESSION", script.replace("\\\n", " "))
    arrays: dict[str, list[str]] = {}
    for line in script.splitlines():
        for name, words in _ARRAY.findall(line):
            arrays.setdefault(name, []).extend(shlex.split(words))
        text = re.sub(r"\$\((.*)\)", r"; \1 ;", line.strip())
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;><")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
        for place, word in enumerate(words):
            before = words[place - 1] if place else ";"
            if word == "dfc" and (before in _ENDS or before == "then" or before.endswith("=")):
                behind = words[place + 1 :]
                end = next((i for i, other in enumerate(behind) if other in _ENDS), len(behind))
                yield [part for other in behind[:end] for part in _expand(other, arrays)]


def _expand(word: str, arrays: dict[str, list[str]]) -> list[str]:
    match = _EXPANSION.fullmatch(word)
    return arrays[match[1]] if match else [word]


def check_command(words: list[str]) -> str:
    """Check names of options, numbers of arguments and plain values; return the command's name.

    Raises:
        click.UsageError: `dfc` would not take them.
    """
    name, *arguments = words
    command = cli.commands.get(name)
    if command is None:
        raise click.UsageError(f"there is no command {name}")
    context = click.Context(command, info_name=name)
    values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if rest:
        raise click.UsageError(f"{rest} is too much")
    for parameter in command.get_params(context):
        value = values.get(parameter.name or "")
        given = [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, str)]
        if parameter.required and not given:
            raise click.MissingParameter(ctx=context, param=parameter)
        for one in given:
            # What a variable holds, and whether a path is there, is known when the script runs.
            if "$" not in one and not isinstance(parameter.type, click.Path) and parameter.name != "place":
                parameter.type.convert(one, parameter, context)
    return name
