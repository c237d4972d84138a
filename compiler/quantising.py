"""`dfc build --quantize`: a target of plain weights as one whose linear layers are stored as integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dfc.compiler.checkpoint.quantisation.patterns import Patterns
from dfc.compiler.checkpoint.quantisation.rounding import GROUP_SIZES, Rounding, round_weight
from dfc.compiler.checkpoint.spec import MixtureSpec, TargetSpec
from dfc.compiler.errors import BuildError, OptionError

Integers = Literal["int4", "int8"]
Choice = Literal["none", "int4", "int8"]

BITS: dict[Integers, int] = {"int4": 4, "int8": 8}

DEFAULT_GROUP_SIZE = 32

ALWAYS_KEPT = Patterns(["in_proj_a", "in_proj_b"])
"""Decay and step size of the recurrent state: a row a head, whose errors every later token inherits."""

DRAFTER = Patterns(["mtp"])


@dataclass(frozen=True)
class Quantisation:
    """What the user asked for: how the linear layers are stored, and the layers with a choice of their own.

    ``head`` is the output head's, and the embedding's where both are one tensor; ``embedding`` that of a separate one;
    ``drafters`` the MTP head's. ``keep`` are patterns of layers that stay as they are, as in published lists.

    Raises:
        OptionError: an option is not one of those that can be.
    """

    weights: Integers
    head: Choice = "none"
    embedding: Choice = "none"
    drafters: Choice = "none"
    group_size: int = DEFAULT_GROUP_SIZE
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.group_size not in GROUP_SIZES:
            listed = ", ".join(map(str, GROUP_SIZES))
            raise OptionError(f"--quantize-group {self.group_size} is not one of {listed}")
        for text in self.keep:
            try:
                Patterns([text])
            except ValueError as error:
                raise OptionError(f"--keep holds {error}") from None

    @property
    def options(self) -> dict[str, str]:
        """What the manifest says of it: all that decides the artifact's bytes."""
        return {
            "quantize": self.weights,
            "quantize_head": self.head,
            "quantize_embedding": self.embedding,
            "quantize_drafters": self.drafters,
            "quantize_group": str(self.group_size),
            **({"keep": ",".join(self.keep)} if self.keep else {}),
        }


def quantise(spec: TargetSpec, asked: Quantisation) -> TargetSpec:
    """Return the target with its weights to be rounded when they are written.

    Raises:
        BuildError: the checkpoint is quantised already, its experts cannot be, or groups do not fit a layer.
        OptionError: a pattern names no layer, or an option is for a layer that there is not.
    """
    if spec.quantised:
        raise BuildError(f"{spec.directory} is quantised already; build it without --quantize")
    if isinstance(spec.feed_forward, MixtureSpec):
        raise BuildError(
            f"{spec.directory} is a mixture of experts, which can be built from plain weights only; leave out"
            " --quantize"
        )
    linears = [name for name, place in spec.tensors.items() if len(place.shape) == 2 and name.endswith(".weight")]
    modules = {name: name.removesuffix(".weight") for name in linears}
    _check_patterns(asked.keep, modules.values(), spec)
    embedding = f"{spec.prefix}embed_tokens.weight"
    if asked.embedding != "none" and spec.head == embedding:
        raise OptionError("--quantize-embedding is for a separate embedding; here --quantize-head stands for both")
    own = {embedding: asked.embedding, spec.head: asked.head}
    keep = Patterns(asked.keep)
    tensors, quantised = dict(spec.tensors), {}
    for name, module in modules.items():
        choice: Choice = own.get(name) or (asked.drafters if DRAFTER.match(module) else asked.weights)
        if choice == "none" or keep.match(module) or ALWAYS_KEPT.match(module):
            continue
        columns = spec.tensors[name].shape[1]
        if columns % asked.group_size:
            raise BuildError(
                f"--quantize-group {asked.group_size} does not divide the {columns} columns of {module};"
                f" give another, or --keep {module}"
            )
        quantised[name] = round_weight(tensors.pop(name), Rounding(BITS[choice], asked.group_size))
    if not quantised:
        raise OptionError("--keep names every layer, so --quantize has nothing to do; leave one of them out")
    return replace(spec, tensors=tensors, quantised=quantised)


def _check_patterns(texts: Iterable[str], modules: Iterable[str], spec: TargetSpec) -> None:
    for text in texts:
        pattern = Patterns([text])
        if not any(pattern.match(module) for module in modules):
            raise OptionError(f"--keep {text} names no linear layer of {spec.directory}")
