"""Kernel and launch of the grouped convolution for a geometry: the same for TensorRT and for a launch by the driver."""

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
    tiles,
)

KERNEL_NAME = "dfc_grouped_conv"
MAX_TAPS = 8
_ROW_THREADS = 8
_FLOATS = ("float32", "bfloat16")


@dataclass(frozen=True)
class GroupedConvGeometry:
    """What is fixed when the kernel is compiled.

    `width` channels; `taps` 1 to 8; `group_size` divides `width`; dtypes `float32` or `bfloat16`; `residual_dtype` None
    where none is added. The output has the residual's dtype, else that of hidden.
    """

    width: int
    taps: int
    group_size: int
    side: int
    hidden_dtype: str
    coefficient_dtype: str
    base_dtype: str
    residual_dtype: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.taps <= MAX_TAPS:
            raise GeometryError(f"GroupedConv: taps is {self.taps}, the kernel has 1 to {MAX_TAPS}")
        if self.group_size < 1 or self.width % self.group_size:
            raise GeometryError(f"GroupedConv: group_size {self.group_size} does not divide the width {self.width}")
        if self.side not in (0, 1):
            raise GeometryError(f"GroupedConv: side is {self.side}, it must be 0 or 1")
        for dtype in (self.hidden_dtype, self.coefficient_dtype, self.base_dtype, self.output_dtype):
            if dtype not in _FLOATS:
                raise GeometryError(f"GroupedConv: dtype {dtype} is not one of {', '.join(_FLOATS)}")

    @property
    def output_dtype(self) -> str:
        """The dtype of the output."""
        return self.residual_dtype or self.hidden_dtype

    @property
    def _vector(self) -> int:
        """Neighbouring channels of a thread."""
        return access_width(self.width, ELEMENT_BYTES[self.hidden_dtype])

    @property
    def _lanes(self) -> int:
        """Threads side by side over the channels: a warp, fewer where the row is short."""
        lanes = WARP
        while lanes > 1 and lanes // 2 * self._vector >= self.width:
            lanes //= 2
        return lanes

    @property
    def _row_threads(self) -> int:
        return _ROW_THREADS * WARP // self._lanes

    def kernel(self) -> Kernel:
        """Return the kernel to compile."""
        defines = {
            "HIDDEN": element_type(self.hidden_dtype),
            "COEFFICIENT": element_type(self.coefficient_dtype),
            "BASE": element_type(self.base_dtype),
            "OUTPUT": element_type(self.output_dtype),
            "WIDTH": self.width,
            "TAPS": self.taps,
            "GROUP_SIZE": self.group_size,
            "SIDE": self.side,
            "VECTOR": self._vector,
            "LANES": self._lanes,
            "ROW_THREADS": self._row_threads,
        }
        inputs = 3
        if self.residual_dtype is not None:
            defines["RESIDUAL"] = element_type(self.residual_dtype)
            inputs = 4
        return Kernel(
            name=KERNEL_NAME,
            package="dfc.plugins.grouped_conv",
            defines=tuple((name, str(value)) for name, value in defines.items()),
            parameters=(POINTER,) * inputs + (INTEGER, INTEGER, POINTER),
        )

    def launch(self, batch: E, block: E) -> Launch[E]:
        """Return the launch for hidden rows [batch, block, width]."""
        rows = batch * block
        channel_tiles = -(-self.width // (self._vector * self._lanes))
        row_tiles = tiles(rows, self._row_threads)
        return Launch(row_tiles * channel_tiles, self._lanes * self._row_threads, (rows, block))
