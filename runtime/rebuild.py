"""The `dfc build` command that would make an artifact again, for messages that say what to do."""

from __future__ import annotations

import shlex

from dfc.artifacts import Manifest

_KEPT = {"max_context": "--max-context", "draft_tokens": "--draft-tokens"}


def build_command(manifest: Manifest, backend: str, capabilities: tuple[str, ...] = ()) -> str:
    """Return the command that builds the artifact's checkpoints again for a backend and some GPUs.

    The checkpoints are named as their directories were; where they lie is in no manifest.
    """
    words = ["dfc", "build", manifest.components["target"].source]
    for name, component in manifest.components.items():
        if name not in ("target", "mtp"):
            words += ["--draft", component.source]
    words += ["--backend", backend]
    if capabilities:
        words += ["--compute-capability", ",".join(capabilities)]
    for option, flag in _KEPT.items():
        value = manifest.build.options.get(option, "default")
        if value != "default":
            words += [flag, value]
    return shlex.join([*words, "-o", "ARTIFACT"])
