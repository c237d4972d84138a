"""Every kind of drafter that has a checkpoint of its own, found by its file."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import dfc.compiler.models
from dfc.compiler.checkpoint import TargetSpec
from dfc.compiler.checkpoint.fields import read_fields
from dfc.compiler.models.drafter import DrafterBuild, DrafterLoader


def load_drafter(directory: Path, target: TargetSpec, draft_tokens: int | None) -> DrafterBuild:
    """Read the drafter in `directory`, of whatever kind.

    Raises:
        CheckpointError: no kind that can be built, damaged, or not made for the target.
    """
    loaders = _find_loaders()
    top = read_fields(directory / "config.json")
    for loader in loaders:
        if loader.recognises(top):
            return loader.load(directory, target, draft_tokens)
    named = ", ".join(top.texts("architectures", ())) or "nothing"
    known = ", ".join(loader.architecture for loader in loaders)
    raise top.error("architectures", f"names {named}; drafters of {known} can be built")


def _find_loaders() -> list[DrafterLoader]:
    names = (module.name for module in pkgutil.iter_modules(dfc.compiler.models.__path__))
    modules = (importlib.import_module(f"{dfc.compiler.models.__name__}.{name}") for name in names)
    return [module.LOADER for module in modules if hasattr(module, "LOADER")]
