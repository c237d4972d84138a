"""mypy on the modules that call an engine library, against the stubs of one library."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.libraries import ROOT, EngineLibrary, prepare

FOLDERS = ("artifacts", "compiler", "plugins", "runtime")
_ERROR = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)")


@dataclass(frozen=True)
class Problem:
    """What mypy says of one line; `file` is below `dfc` for dfc's own."""

    file: str
    line: int
    message: str


def copy_sources(target: Path, changed: Mapping[str, str]) -> None:
    """Copy dfc's sources to `target`/dfc, with the text of some files, by path below `dfc`, replaced."""
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, target / "dfc" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in changed.items():
        (target / "dfc" / path).write_text(text, encoding="utf-8")


def check(library: EngineLibrary, sources: Path) -> list[Problem]:
    """Type-check the modules that call `library`, from `sources`/dfc, and return what is wrong.

    Raises:
        subprocess.CalledProcessError: the library's stubs cannot be made.
        AssertionError: mypy itself fails.
    """
    prepare(library)
    modules = [part for module in library.modules for part in ("-m", module)]
    command = [
        *(sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")),
        *("--cache-dir", str(library.folder / "cache"), "--no-error-summary", "--hide-error-context"),
        # What one library makes necessary to ignore, another or none at all does not.
        *("--no-warn-unused-ignores", *modules),
    ]
    environment = {"MYPYPATH": f".:{library.stubs}", "PATH": "/usr/bin:/bin"}
    finished = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True)
    errors = [found for line in finished.stdout.splitlines() if (found := _ERROR.match(line))]
    assert finished.returncode == (1 if errors else 0), finished.stdout + finished.stderr
    problems = [Problem(found["file"].removeprefix("dfc/"), int(found["line"]), found["message"]) for found in errors]
    # Modules that come in by imports may be for another library.
    wanted = {f"{module.removeprefix('dfc.').replace('.', '/')}.py" for module in library.modules}
    return [problem for problem in problems if problem.file in wanted or str(library.stubs) in problem.file]
