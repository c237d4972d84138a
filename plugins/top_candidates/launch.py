"""Kernel and launch of the top candidates for a geometry: the same for TensorRT and for a launch by the driver."""

from __future__ import annotations

from dataclasses import dataclass

from dfc.plugins.kernel import (
    ELEMENT_BYTES,
    INTEGER,
    POINTER,
    E,
    GeometryError,
    Kernel,
    Launch,
    access_width,
    element_type,
)

KERNEL_NAME = "dfc_top_candidates"
MAX_CANDIDATES = 32
THREADS = 1024


@dataclass(frozen=True)
class TopCandidatesGeometry:
    """What is fixed when the kernel is compiled.

    `candidates` K 1 to 32; `width` V, the logits of a row; `vocab_size`, how many of them are tokens, K to V; logits
    `float32` or `bfloat16`. Ids are int64.
    """

    candidates: int
    width: int
    vocab_size: int
    logit_dtype: str

    def __post_init__(self) -> None:
        if not 1 <= self.candidates <= MAX_CANDIDATES:
            raise GeometryError(f"TopCandidates: k is {self.candidates}, the kernel has 1 to {MAX_CANDIDATES}")
        if not self.candidates <= self.vocab_size <= self.width:
            raise GeometryError(
                f"TopCandidates: vocab_size is {self.vocab_size}, it must be {self.candidates} (k) to {self.width}"
                " (logits of a row)"
            )
        if self.logit_dtype not in ("float32", "bfloat16"):
            raise GeometryError(f"TopCandidates: logits are {self.logit_dtype}, they must be float32 or bfloat16")

    def kernel(self) -> Kernel:
        """Return the kernel to compile."""
        defines = {
            "LOGIT": element_type(self.logit_dtype),
            "CANDIDATES": self.candidates,
            "WIDTH": self.width,
            "VOCABULARY": self.vocab_size,
            "THREADS": THREADS,
            # Neighbouring logits in one access; rows begin where one may.
            "VECTOR": access_width(self.width, ELEMENT_BYTES[self.logit_dtype]),
        }
        return Kernel(
            name=KERNEL_NAME,
            package="dfc.plugins.top_candidates",
            defines=tuple((name, str(value)) for name, value in defines.items()),
            parameters=(POINTER, INTEGER, POINTER, POINTER),
        )

    def launch(self, batch: E, slots: E) -> Launch[E]:
        """Return the launch for logits [batch, slots, V]."""
        rows = batch * slots
        return Launch(rows, THREADS, (rows,))
