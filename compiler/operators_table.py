"""The table of operators as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dfc.compiler.export.stage import DFC_DOMAIN, OPSET
from dfc.compiler.operators import BackendUse, Uses, has_function, is_standard

_HEADER = f"""# Operators

Written by `dfc operators`; a test fails when it is stale. Every operator of the stages of the reference model with its
MTP head and DFlash2 drafter (DFlash uses some of DFlash2's operators and no other), opset {OPSET}.

* **native**: the backend gets the operator as it stands in the stage graph.
* **fused**: an operator that onnxruntime contributes, in place of one or several.
* **function body**: a dfc operator written out in standard ones, for the shape of the engine where shapes are static.
* **plugin**: a node that the library resolves to dfc's plugin.
* **function inlined**: the library takes the operator's ONNX function apart, for it has nothing of its own for it.
* **folded**: nothing is left of it in a backend's graph.
"""


def operators_table(stages: Uses, backends: Sequence[BackendUse]) -> str:
    """Return the whole document."""
    return "\n".join(
        [
            _HEADER,
            "## What stands in the stage graphs\n",
            *_stage_table(stages, backends),
            "",
            "## What function bodies are made of\n",
            *_bodies(stages, backends),
            "",
            "## What the libraries make of the graphs they get\n",
            "onnxruntime: whether a session has a kernel. TensorRT-RTX: the kinds of layers its parser makes, before"
            " the builder fuses\nany. TensorRT gets the same standard operators as TensorRT-RTX; its parser is not in"
            " any package registry, so its layers\nare not listed.\n",
            *_library_table(backends),
            "",
        ]
    )


def _stage_table(stages: Uses, backends: Sequence[BackendUse]) -> Iterator[str]:
    yield _row("operator", "stages", *(use.name for use in backends))
    yield _row(*["---"] * (2 + len(backends)))
    for operator in sorted(stages, key=_order):
        ways = (way(operator, use.became.get(operator, set())) for use in backends)
        yield _row(f"`{operator}`", str(len(stages[operator])), *ways)


def way(operator: str, became: set[str]) -> str:
    """Return how a backend takes an operator, from the operators that it has in its place."""
    if not became:
        return "folded"
    if became == {operator}:
        return "plugin" if operator.startswith(DFC_DOMAIN) else "native"
    words = []
    plugins = {name for name in became if name.startswith(f"{DFC_DOMAIN}::")}
    contributed = {name for name in became - plugins if not is_standard(name)}
    if plugins:
        words.append(f"plugin {_listed(plugins)}")
    if contributed:
        words.append(f"fused {_listed(contributed)}")
    if operator in became:
        words.append("native")
    others = len(became - plugins - contributed - {operator})
    if others and not plugins and not contributed:
        words.append("function body" if operator.startswith(DFC_DOMAIN) else f"as {_listed(became - {operator})}")
    elif others:
        words.append(f"with {others} standard operators")
    return ", ".join(words)


def _bodies(stages: Uses, backends: Sequence[BackendUse]) -> Iterator[str]:
    for operator in sorted(stages, key=_order):
        if not operator.startswith(DFC_DOMAIN):
            continue
        yield f"* `{operator}`"
        alike: dict[str, list[str]] = {}
        for use in backends:
            alike.setdefault(_listed(use.became.get(operator, set())), []).append(use.name)
        for made, names in alike.items():
            yield f"    * {', '.join(names)}: {made}"


def _library_table(backends: Sequence[BackendUse]) -> Iterator[str]:
    known = [use for use in backends if use.parts]
    yield _row("operator", *(use.name for use in known))
    yield _row(*["---"] * (1 + len(known)))
    for operator in sorted({name for use in known for name in use.parts}, key=_order):
        yield _row(f"`{operator}`", *(_parts(operator, use) for use in known))


def _parts(operator: str, use: BackendUse) -> str:
    parts = use.parts.get(operator, set())
    if not parts:
        return ""
    if parts == {operator}:
        return "native"
    kinds = {part.replace("_", "").lower() for part in parts}
    inlined = len(parts) > 1 and has_function(operator) and operator.lower() not in kinds
    listed = ", ".join(sorted(parts)).lower()
    return f"function inlined: {listed}" if inlined else listed


def _listed(operators: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(operators, key=_order)) or "nothing"


def _order(operator: str) -> tuple[bool, str]:
    """dfc's operators before the standard ones."""
    return (not operator.startswith(DFC_DOMAIN), operator)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
