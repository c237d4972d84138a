"""The log of a build: in the artifact's temporary directory while it is written, beside the output when it fails."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from dfc.compiler.errors import BuildError

LOG_NAME = "build.log"


@contextlib.contextmanager
def build_log(file: Path, output: Path) -> Iterator[Path]:
    """Give the file that libraries write to while engines are built, and remove it after that.

    When a library has failed the log is kept as `output`.build.log, which the error names.
    """
    try:
        yield file
    except BuildError as error:
        if not error.log or not file.is_file():
            raise
        kept = output.with_name(f"{output.name}.{LOG_NAME}")
        try:
            shutil.copyfile(file, kept)
        except OSError as problem:
            raise BuildError(f"{error}; its log cannot be kept: {problem.strerror}", error.log) from error
        raise BuildError(f"{error}; the library's log is in {kept}", error.log) from error
    finally:
        # It differs from build to build, and is no part of the artifact.
        file.unlink(missing_ok=True)
