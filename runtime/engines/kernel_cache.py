"""The kernels that TensorRT-RTX compiles for this GPU when an engine first runs, kept between runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dfc.plugins.user_cache import write_cache

if TYPE_CHECKING:
    from engine_library import IRuntimeCache, IRuntimeConfig


class KernelCache:
    """One file. The library itself checks that what it holds is for this GPU, driver and version."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: IRuntimeCache | None = None
        self._known = 0

    def attach(self, config: IRuntimeConfig) -> None:
        """Let contexts made from `config`, a runtime configuration, take kernels from here and add theirs."""
        if self._cache is None:
            self._cache = config.create_runtime_cache()
            self._load(self._cache)
        config.set_runtime_cache(self._cache)

    def save(self) -> None:
        """Write the file if it lacks some of the kernels; a folder that cannot be written keeps nothing.

        Only while an engine lives: TensorRT-RTX 1.6.1 crashes when its cache is asked for its content after that.
        """
        assert self._cache is not None
        content = bytes(self._cache.serialize())
        if len(content) != self._known and write_cache(self._path, content):
            self._known = len(content)

    def _load(self, cache: IRuntimeCache) -> None:
        try:
            content = self._path.read_bytes()
        except OSError:
            return
        if cache.deserialize(content):
            self._known = len(content)
