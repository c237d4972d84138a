"""What a published format is to the reader of a checkpoint."""

from __future__ import annotations

from typing import Protocol

from dfc.compiler.checkpoint.quantisation.module import Module
from dfc.compiler.checkpoint.quantisation.weight import QuantisedWeight


class Method(Protocol):
    """One checkpoint's quantisation, its config checked."""

    def find(self, module: Module) -> QuantisedWeight | None:
        """Return the weight of a linear layer, None for one that is stored plain.

        Raises:
            CheckpointError: its tensors do not fit.
        """
        ...
