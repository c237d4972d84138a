"""Kernel and launch of the candidate selector for a geometry: the same for TensorRT and for a launch by the driver."""

from __future__ import annotations

from dataclasses import dataclass

from dfc.plugins.kernel import (
    ELEMENT_BYTES,
    INTEGER,
    POINTER,
    WARP,
    E,
    GeometryError,
    Kernel,
    Launch,
    access_width,
    element_type,
)

KERNEL_NAME = "dfc_candidate_selector"
MAX_CANDIDATES = 32
MAX_RANK = 512
MAX_SLOTS = 31
_FLOATS = ("float32", "bfloat16")

# Of a multiprocessor, and how many warps get theirs at once; what the kernel needs besides its rows; and the shared
# memory that every thread block may have, less what the scores need.
_REGISTERS = 65536
_WARPS_PER_GRANULE = 4
_OTHER_REGISTERS = 40
_SHARED_BYTES = 47 * 1024


@dataclass(frozen=True)
class SelectorGeometry:
    """What is fixed when the kernel is compiled.

    `candidates` K 1 to 32; `rank` R 1 to 512; `max_slots` 1 to 31; `sampled`: with temperature and uniforms, and q as a
    second output. Ids are `int32` or `int64`, the rest `float32` or `bfloat16`; temperature, uniforms, q are float32.
    """

    candidates: int
    rank: int
    max_slots: int
    sampled: bool
    id_dtype: str
    logit_dtype: str
    projected_dtype: str
    codebook_dtype: str

    def __post_init__(self) -> None:
        limits = (
            ("candidates", self.candidates, MAX_CANDIDATES),
            ("rank", self.rank, MAX_RANK),
            ("max_slots", self.max_slots, MAX_SLOTS),
        )
        for name, value, limit in limits:
            if not 1 <= value <= limit:
                raise GeometryError(f"CandidateSelector: {name} is {value}, the kernel has 1 to {limit}")
        if self.id_dtype not in ("int32", "int64"):
            raise GeometryError(f"CandidateSelector: ids are {self.id_dtype}, they must be int32 or int64")
        for dtype in (self.logit_dtype, self.projected_dtype, self.codebook_dtype):
            if dtype not in _FLOATS:
                raise GeometryError(f"CandidateSelector: dtype {dtype} is not one of {', '.join(_FLOATS)}")

    @property
    def _vector(self) -> int:
        """Neighbouring elements of a codebook row in one access."""
        return access_width(self.rank, ELEMENT_BYTES[self.codebook_dtype])

    @property
    def _loads_ahead(self) -> bool:
        """Whether one slot's rows can be loaded while the one before is decided."""
        elements = -(-self.rank // (WARP * self._vector)) * self._vector
        row_bytes = elements * ELEMENT_BYTES[self.codebook_dtype]
        # A thread keeps its share of two codebook rows, of the projected row, and of the products.
        thread_bytes = 2 * row_bytes + elements * (ELEMENT_BYTES[self.projected_dtype] + ELEMENT_BYTES["float32"])
        registers = _REGISTERS // (WARP * -(-self.candidates // _WARPS_PER_GRANULE) * _WARPS_PER_GRANULE)
        shared_bytes = 2 * self.candidates * WARP * row_bytes
        return thread_bytes // 4 + _OTHER_REGISTERS <= registers and shared_bytes <= _SHARED_BYTES

    def kernel(self) -> Kernel:
        """Return the kernel to compile."""
        defines = {
            "ID": element_type(self.id_dtype),
            "LOGIT": element_type(self.logit_dtype),
            "PROJECTED": element_type(self.projected_dtype),
            "CODEBOOK": element_type(self.codebook_dtype),
            "CANDIDATES": self.candidates,
            "RANK": self.rank,
            "SAMPLED": int(self.sampled),
            "VECTOR": self._vector,
            "AHEAD": int(self._loads_ahead),
        }
        inputs, outputs = (8, 2) if self.sampled else (6, 1)
        return Kernel(
            name=KERNEL_NAME,
            package="dfc.plugins.selector",
            defines=tuple((name, str(value)) for name, value in defines.items()),
            parameters=(POINTER,) * inputs + (INTEGER,) + (POINTER,) * outputs,
        )

    def launch(self, batch: E, slots: E) -> Launch[E]:
        """Return the launch for candidates [batch, slots, K]; slots must not pass `max_slots`."""
        return Launch(batch, WARP * self.candidates, (slots,))
