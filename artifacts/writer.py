"""Writing an artifact so that it is there whole or not at all."""

import contextlib
import json
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from dfc.artifacts.copying import link_or_copy
from dfc.artifacts.errors import ArtifactError, reporting
from dfc.artifacts.hashing import Progress, hash_files
from dfc.artifacts.manifest import File, Manifest
from dfc.artifacts.partial import PartialDirectory, sweep
from dfc.artifacts.paths import MANIFEST_NAME, check_relative
from dfc.artifacts.renaming import move_new, replace


class ArtifactWriter:
    """Collects the files of one artifact in a hidden sibling of `output` and renames it into place at `commit`.

    Use it as a context manager: leaving the block without `commit`, by an exception or not, removes everything written.
    """

    def __init__(self, output: Path, *, force: bool = False) -> None:
        # A link to a directory stays a link: what it points to is replaced.
        self._output = Path(output).resolve()
        self._force = force
        self._partial: PartialDirectory | None = None

    def __enter__(self) -> Self:
        """Check the output path and make the hidden directory.

        Raises:
            ArtifactError: the output exists and may not be replaced, or its parent cannot be written.
        """
        with reporting(f"cannot write {self._output}"):
            _make_directory(self._output.parent)
            sweep(self._output)
            check_replaceable(self._output, force=self._force)
            self._partial = PartialDirectory.create(self._output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._partial is not None:
            self._partial.remove()
            self._partial = None

    def path(self, relative: str) -> Path:
        """Return where to write the new file `relative`, its directory made.

        Raises:
            ArtifactError: the path leaves the artifact, is the manifest's, or has been written already.
        """
        check_relative(relative)
        if relative == MANIFEST_NAME:
            raise ArtifactError(f"{MANIFEST_NAME} is written by the commit, not as a file")
        path = self._root / relative
        # Writing to it again could write through a hard link into the user's checkpoint.
        if os.path.lexists(path):
            raise ArtifactError(f"{relative} is in the artifact already; every file is written once")
        with reporting(f"cannot write {relative}"):
            _make_directory(path.parent)
        return path

    def add_bytes(self, relative: str, data: bytes) -> None:
        """Write `data` as the new file `relative`.

        Raises:
            ArtifactError: the path leaves the artifact, exists already or cannot be written.
        """
        path = self.path(relative)
        with reporting(f"cannot write {relative}"), path.open("xb") as file:
            file.write(data)

    def add_file(self, relative: str, source: Path) -> None:
        """Bring the file `source` in as `relative`: as a hard link where possible, else as a copy that keeps holes.

        Raises:
            ArtifactError: the path leaves the artifact or exists already, or the source is not a readable file.
        """
        path = self.path(relative)
        if not Path(source).is_file():
            raise ArtifactError(f"{source} is not a file")
        with reporting(f"cannot copy {source} to {relative}"):
            link_or_copy(Path(source), path)

    def commit(self, manifest: Manifest, progress: Progress | None = None) -> Manifest:
        """Hash the files, write the manifest with them, put the artifact into place and return that manifest.

        Raises:
            ArtifactError: the manifest names a file that was not written, or the output cannot be put into place.
        """
        root = self._root
        with reporting(f"cannot read the files of {self._output}"):
            names = _list_files(root)
            paths = [root / name for name in names]
            digests = hash_files(paths, progress)
            sizes = [path.stat().st_size for path in paths]
        files = {name: File(sha256=sha, size=size) for name, sha, size in zip(names, digests, sizes, strict=True)}
        complete = manifest.with_files(files).sealed()
        with reporting(f"cannot write {self._output}"):
            (root / MANIFEST_NAME).write_text(complete.to_json(), encoding="utf-8")
            _sync_tree(root)
            self._publish()
        return complete

    @property
    def _root(self) -> Path:
        if self._partial is None:
            raise RuntimeError("the artifact writer is not open")
        return self._partial.path

    def _publish(self) -> None:
        assert self._partial is not None
        # Another build may have put something there meanwhile.
        check_replaceable(self._output, force=self._force)
        if self._output.exists():
            old = replace(self._partial.path, self._output, self._partial.aside)
            self._release()
            shutil.rmtree(old, ignore_errors=True)
        else:
            move_new(self._partial.path, self._output)
            self._release()
        _sync(self._output.parent)

    def _release(self) -> None:
        assert self._partial is not None
        self._partial.unlock()
        self._partial = None


def make_parent(output: Path) -> None:
    """Make the directory that an artifact is written into.

    Raises:
        ArtifactError: it cannot be made.
    """
    output = Path(output).resolve()
    with reporting(f"cannot write {output}"):
        _make_directory(output.parent)


def adopt(tree: Path, output: Path, *, force: bool) -> None:
    """Put the whole artifact directory `tree`, made beside `output`, into the place of `output`.

    Raises:
        ArtifactError: the output may not be replaced or cannot be written.
    """
    with reporting(f"cannot write {output}"):
        _sync_tree(tree)
        check_replaceable(output, force=force)
        if output.exists():
            # Under this name `sweep` puts it back when the process dies between the two steps.
            aside = output.parent / f".{output.name}.{secrets.token_hex(4)}.previous"
            shutil.rmtree(replace(tree, output, aside), ignore_errors=True)
        else:
            move_new(tree, output)
        _sync(output.parent)


def check_replaceable(output: Path, *, force: bool) -> None:
    """Check that an artifact may be written to `output`; call it before any long work.

    Raises:
        ArtifactError: something is there and `force` is not given, or it is neither an artifact nor an empty directory.
    """
    if not os.path.lexists(output):
        return
    if not force:
        raise ArtifactError(f"{output} exists already; give --force to replace it")
    if not _is_artifact(output) and not _is_empty_directory(output):
        raise ArtifactError(f"{output} is not a dfc artifact, so --force does not replace it; remove it by hand")


def _is_artifact(path: Path) -> bool:
    try:
        content = json.loads((path / MANIFEST_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    # Read loosely: an artifact of a newer dfc may be replaced, someone's web manifest may not.
    return isinstance(content, dict) and {"schema_version", "files", "stages"} <= content.keys()


def _is_empty_directory(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _list_files(root: Path) -> list[str]:
    names = []
    for folder, directories, files in os.walk(root, onerror=_raise):
        for entry in (*directories, *files):
            path = Path(folder, entry)
            name = check_relative(path.relative_to(root).as_posix())
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise ArtifactError(f"{name} is not a regular file, so it cannot be part of an artifact")
            if path.is_file():
                names.append(name)
    return sorted(names)


def _raise(error: OSError) -> None:
    raise error


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ArtifactError(f"{error.filename} is a file where a directory is needed") from None


def _sync_tree(root: Path) -> None:
    """Bring files and directories to the disk, so that no power cut leaves the new name on unwritten bytes."""
    for folder, _, files in os.walk(root, topdown=False):
        for file in files:
            _sync(Path(folder, file))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Some network filesystems cannot sync what is open for reading; the artifact is no worse for it.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
