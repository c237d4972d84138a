"""The drafters: each continues from the target's last committed rows; one file each, found by itself."""

from __future__ import annotations

import importlib
import pkgutil

from dfc.runtime.drafters.kind import DrafterKind


def _find_kinds() -> dict[str, DrafterKind]:
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    kinds = [module.KIND for module in modules if hasattr(module, "KIND")]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.rank)}


KINDS = _find_kinds()
"""By name, the one `auto` prefers first."""
