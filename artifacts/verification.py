"""Whether the contents of an artifact's files are the ones that were built."""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.hashing import Progress, hash_files
from dfc.artifacts.manifest import MAX_MANIFEST_BYTES, Manifest
from dfc.artifacts.paths import MANIFEST_NAME
from dfc.artifacts.reader import Artifact, read_manifest
from dfc.artifacts.remembered import Sound, recall, remember, stamps
from dfc.artifacts.structure import compare
from dfc.artifacts.tensors import check_file

_OTHER_DIGEST = "is not as it was built: its SHA-256 differs"
_REMEDY = "build the artifact again, or give --no-verify to run it as it is"


@dataclass(frozen=True)
class Finding:
    """What verifying says of one name: `problem` is None or words that follow the name in a sentence."""

    name: str
    size: int | None
    problem: str | None


def verify(artifact: Artifact, progress: Progress | None = None) -> list[str]:
    """Recompute the digest of every file and return the names of those that differ or are gone, sorted.

    Raises:
        ArtifactError: a file is there but cannot be read.
    """
    return damaged_files(artifact, artifact.manifest.files, progress)


def examine(root: Path, progress: Progress | None = None) -> list[Finding]:
    """Look at everything in an artifact directory: names, kinds, sizes, digests, and what its tensors point to.

    The findings name every file that is listed or there, sorted; a manifest that cannot be read is the only finding.

    Raises:
        ArtifactError: this is no artifact directory, or something in it cannot be read.
    """
    root = Path(root)
    try:
        manifest = read_manifest(root)
    except ArtifactError as error:
        if not (root / MANIFEST_NAME).is_file():
            raise
        return [Finding(MANIFEST_NAME, None, f"cannot be used: {error}")]
    try:
        structure = compare(root, manifest)
    except OSError as error:
        raise ArtifactError(f"cannot read {root}: {error.strerror}") from error
    problems = {difference.name: difference.problem for difference in structure.differences()}
    own_problem = manifest_problem(root, manifest)
    if own_problem is not None:
        problems.setdefault(MANIFEST_NAME, own_problem)
    artifact = Artifact(root, manifest)
    for name in damaged_files(artifact, manifest.files.keys() - problems.keys(), progress):
        problems[name] = _OTHER_DIGEST
    for name in sorted(manifest.files.keys() - problems.keys()):
        try:
            check_file(root, name, manifest)
        except ArtifactError as error:
            problems[name] = f"cannot be used: {error}"
    names = sorted({MANIFEST_NAME, *manifest.files, *problems})
    return [Finding(name, _size(root / name), problems.get(name)) for name in names]


def check_files(artifact: Artifact, names: Iterable[str], memory: Path, progress: Progress | None = None) -> None:
    """Check the manifest and the listed files `names`, which a run reads, against their digests.

    A file that was found sound before and looks the same is not read again; `memory` is the folder, outside any
    artifact, that holds what was found.

    Raises:
        ArtifactError: a file is damaged; the message names it.
    """
    root, listed, wanted = artifact.root, artifact.manifest.files, frozenset(names)
    problem = manifest_problem(root, artifact.manifest)
    if problem is not None:
        raise ArtifactError(f"{root} is damaged: {MANIFEST_NAME} {problem}; {_REMEDY}")
    remembered, now = recall(memory, root), stamps(root, wanted)
    pending = {
        name for name in wanted if name not in now or remembered.get(name) != Sound(listed[name].sha256, now[name])
    }
    if not pending:
        return
    for name in damaged_files(artifact, pending, progress):
        raise ArtifactError(f"{root} is damaged: {name} {_OTHER_DIGEST}; {_REMEDY}")
    after = stamps(root, pending)
    sound = {
        name: Sound(listed[name].sha256, after[name])
        for name in sorted(pending)
        if after.get(name) == now[name] and after[name].is_settled()
    }
    kept = {name: entry for name, entry in remembered.items() if name in listed and name not in pending}
    remember(memory, root, {**kept, **sound})


def manifest_problem(root: Path, manifest: Manifest) -> str | None:
    """Return what is wrong with the manifest that was read from an artifact directory, None when it is as written.

    Raises:
        ArtifactError: the file cannot be read.
    """
    if manifest.content_sha256 is None:
        return "has no digest of itself, because an earlier dfc built it"
    if not manifest.is_whole(read_bounded(root / MANIFEST_NAME, MAX_MANIFEST_BYTES)):
        return "is not as it was written: it does not fit the digest of itself"
    return None


def damaged_files(artifact: Artifact, names: Iterable[str], progress: Progress | None = None) -> list[str]:
    """Return which of the listed files `names` differ from their size or digest or are gone, sorted.

    Raises:
        ArtifactError: a file is there but cannot be read.
    """
    wanted, listed = sorted(names), artifact.manifest.files
    present = [name for name in wanted if _size(artifact.root / name) == listed[name].size]
    try:
        digests = hash_files([artifact.root / name for name in present], progress)
    except OSError as error:
        raise ArtifactError(f"cannot read {error.filename}: {error.strerror}") from error
    sound = {name for name, digest in zip(present, digests, strict=True) if digest == listed[name].sha256}
    return [name for name in wanted if name not in sound]


def _size(path: Path) -> int | None:
    """Return the size of a regular file, None for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
