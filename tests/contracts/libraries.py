"""The engine libraries that dfc's calls are checked against, and which modules call which.

`python -m tests.contracts.libraries`, which is `make libraries`, installs the bindings that the environment has no
place for and writes the stubs of all of them under build/contracts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "build" / "contracts"

SHARED = (
    "dfc.compiler.engines.tensorrt_builder",
    "dfc.compiler.engines.tensorrt_progress",
    "dfc.plugins.library_log",
    "dfc.runtime.engines.tensorrt_engine",
    "dfc.runtime.engines.tensorrt_runtime",
)
"""Modules that take either library."""

RTX = (
    "dfc.compiler.engines.tensorrt_rtx",
    "dfc.compiler.operators",
    "dfc.runtime.engines.kernel_cache",
    "dfc.runtime.engines.tensorrt_rtx",
)

FULL = (
    "dfc.compiler.engines.tensorrt",
    "dfc.plugins.tensorrt_plugins",
    *sorted(f"dfc.plugins.{plugin.parent.name}.plugin" for plugin in (ROOT / "plugins").glob("*/plugin.py")),
)


@dataclass(frozen=True)
class EngineLibrary:
    """One version of one library.

    ``extension`` is the compiled module inside its bindings, ``modules`` what must type-check against it. `requirement`
    is what `bindings` holds, a folder outside the environment; both None for what the environment itself has.
    """

    name: str
    version: str
    extension: str
    modules: tuple[str, ...]
    requirement: str | None = None
    bindings: Path | None = None

    @property
    def folder(self) -> Path:
        """Where its stubs and its type cache lie."""
        return CONTRACTS / self.name

    @property
    def stubs(self) -> Path:
        """What mypy searches."""
        return self.folder / "stubs"


LIBRARIES = {
    library.name: library
    for library in (
        EngineLibrary("tensorrt", "11.4.0.106", "tensorrt", SHARED + FULL),
        EngineLibrary("tensorrt-rtx-1.6", "1.6.1.120", "tensorrt_rtx", SHARED + RTX),
        EngineLibrary(
            name="tensorrt-rtx-1.7",
            version="1.7.1.116",
            extension="tensorrt_rtx",
            modules=SHARED + RTX,
            requirement="tensorrt-rtx-cu13-bindings==1.7.1.116",
            bindings=CONTRACTS / "tensorrt-rtx-1.7" / "bindings",
        ),
    )
}


def prepare(library: EngineLibrary) -> None:
    """Install what is missing of a library and write its stubs, unless both are there and up to date.

    Raises:
        subprocess.CalledProcessError: pip or the import of the bindings fails.
    """
    ready = library.folder / "ready"
    sources = [Path(__file__).with_name(name) for name in ("libraries.py", "stubs.py")]
    if ready.is_file() and all(ready.stat().st_mtime >= source.stat().st_mtime for source in sources):
        return
    if library.requirement is not None and library.bindings is not None:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]
        subprocess.run([*install, str(library.bindings), library.requirement], check=True)
    shutil.rmtree(library.stubs, ignore_errors=True)
    write = [sys.executable, "-m", "tests.contracts.stubs", library.name, str(library.folder)]
    subprocess.run(write, cwd=ROOT, check=True)
    ready.touch()


if __name__ == "__main__":
    for library in LIBRARIES.values():
        prepare(library)
