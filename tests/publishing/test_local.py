"""`dfc push` to a tar file, and `dfc pull` from one or from a directory."""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dfc.artifacts import Artifact, ArtifactError, open_artifact
from dfc.artifacts.publishing.errors import PublishingError
from dfc.artifacts.publishing.local import receive
from dfc.artifacts.publishing.tar import pack
from tests.artifacts.samples import content, write_tensor_artifact
from tests.cli.damage import flip_bit
from tests.cli.process import DFC, assert_fails, dfc
from tests.publishing.service import Service

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tensor_artifact(tmp_path / "artifact")


@pytest.fixture
def packed(root: Path, tmp_path: Path) -> Path:
    pack(open_artifact(root), tmp_path / "packed.tar")
    return tmp_path / "packed.tar"


def members(file: Path) -> list[Member]:
    with tarfile.open(file, "r:") as tar:
        return [(entry, tar.extractfile(entry).read()) for entry in tar]  # type: ignore[union-attr]


def write(file: Path, entries: Sequence[Member]) -> Path:
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry, data in entries:
            tar.addfile(entry, io.BytesIO(data))
    return file


def named(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(data)
    return entry, data


def assert_refused(source: Path, tmp_path: Path, *fragments: str, digest: str | None = None) -> None:
    """Nothing may be left, neither in the output's place nor beside it, nor anywhere else."""
    folder = tmp_path / "here"
    folder.mkdir(exist_ok=True)
    outside = sorted(tmp_path.rglob("*"))
    with pytest.raises((PublishingError, ArtifactError)) as caught:
        receive(source, folder / "pulled", digest=digest)
    message = str(caught.value)
    assert message.isprintable(), message
    for fragment in fragments:
        assert fragment in message
    assert sorted(tmp_path.rglob("*")) == outside


def test_a_tar_file_goes_there_and_back(reference_artifact: Artifact, tmp_path: Path) -> None:
    file = tmp_path / "reference.tar"
    pushed = dfc("push", reference_artifact.root, file)
    assert pushed.returncode == 0, pushed.stderr
    pinned = pushed.stdout.decode().strip()
    assert re.fullmatch(rf"{re.escape(str(file))}@sha256:[0-9a-f]{{64}}", pinned)
    for source in (str(file), pinned, f"{reference_artifact.root}@{pinned.partition('@')[2]}"):
        output = tmp_path / "here" / str(len(source))
        finished = dfc("pull", source, "-o", output)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.decode().strip().partition("@")[2] == pinned.partition("@")[2]
        assert content(output) == content(reference_artifact.root)
    # Any other tool reads it, too.
    with tarfile.open(file, "r:") as tar:
        tar.extractall(tmp_path / "elsewhere", filter="data")
    assert content(tmp_path / "elsewhere") == content(reference_artifact.root)
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_equal_artifacts_give_equal_tar_files(root: Path, packed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    for path in copy.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (1, 1))
    pack(open_artifact(copy), tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()


@pytest.mark.xdist_group("registry")
def test_the_digest_is_that_of_a_registry(service: Service, root: Path, packed: Path, tmp_path: Path) -> None:
    sent = dfc("push", root, f"oci://{service.host}/model:v1", "--plain-http")
    assert sent.returncode == 0, sent.stderr
    digest = sent.stdout.decode().strip().partition("@")[2]
    assert receive(packed, tmp_path / "tar", digest=digest) == digest
    assert receive(root, tmp_path / "directory", digest=digest) == digest


def test_long_names_and_a_signature_travel(tmp_path: Path) -> None:
    from tests.artifacts.samples import FILES, write_artifact
    from tests.cli.test_sign import write_keys

    long = f"tokenizer/{'n' * 200}ü"
    write_artifact(tmp_path / "artifact", {**FILES, "weights/target/model.safetensors": TENSORS, long: b"long"})
    # Its engine is no ONNX, which nothing here reads: only packing and its format are looked at.
    pack(open_artifact(tmp_path / "artifact"), tmp_path / "long.tar")
    assert long in [entry.name for entry, _ in members(tmp_path / "long.tar")]
    root = write_tensor_artifact(tmp_path / "signed")
    private, public = write_keys(tmp_path, "mine")
    assert dfc("sign", root, "--key", private).returncode == 0
    pack(open_artifact(root), tmp_path / "signed.tar")
    receive(tmp_path / "signed.tar", tmp_path / "pulled")
    assert dfc("verify", tmp_path / "pulled", "--key", public).returncode == 0


TENSORS = b"\x02\0\0\0\0\0\0\0{}"


def test_a_flipped_bit_is_refused(root: Path, packed: Path, tmp_path: Path) -> None:
    """Everywhere but in the fields of the format that say nothing, such as times."""
    expected, sound = content(root), packed.read_bytes()
    for seed in range(60):
        flip_bit(packed, seed)
        output = tmp_path / "here" / "pulled"
        try:
            receive(packed, output)
        except (PublishingError, ArtifactError):
            assert not list(output.parent.iterdir())
        else:
            assert content(output) == expected
            shutil.rmtree(output)
        packed.write_bytes(sound)
    for name, data in expected.items():
        for seed in range(4):
            place = sound.index(data) + random.Random(f"{name}{seed}").randrange(len(data))
            packed.write_bytes(sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :])
            assert_refused(packed, tmp_path, str(packed))
    directory = root / "weights/target/model.safetensors"
    flip_bit(directory, 1)
    assert_refused(root, tmp_path, "model.safetensors is not what its digest says")


Change = Callable[[list[Member]], object]


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda entries: entries.insert(1, named("../outside", b"x")), "../outside is where"),
        (lambda entries: entries.insert(1, named("/tmp/outside", b"x")), "/tmp/outside is where"),
        (lambda entries: entries.append(named("../outside", b"x")), "../outside is not listed"),
        (lambda entries: entries.append(named("tokenizer/extra", b"x")), "tokenizer/extra is not listed"),
        (lambda entries: entries.append(entries[1]), "is not listed"),
        (lambda entries: entries.pop(), "is missing"),
        (lambda entries: entries.pop(0), "does not begin with manifest.json"),
        (lambda entries: entries.reverse(), "does not begin with manifest.json"),
        (lambda entries: entries.insert(2, entries.pop(1)), "is where"),
        (lambda entries: entries.insert(1, named("weights", kind=tarfile.DIRTYPE)), "weights in it is not a regular"),
        (lambda entries: entries.insert(1, named("a", kind=tarfile.SYMTYPE, link="/etc/passwd")), "not a regular file"),
        (lambda entries: entries.insert(1, named("a", kind=tarfile.LNKTYPE, link="../a")), "not a regular file"),
        (lambda entries: entries.insert(1, named("a", kind=tarfile.CHRTYPE)), "not a regular file"),
        (lambda entries: entries.insert(1, named("a", kind=tarfile.FIFOTYPE)), "not a regular file"),
        (lambda entries: entries.insert(1, named("a", b"x" * 512, tarfile.GNUTYPE_SPARSE)), "not a regular file"),
        (lambda entries: entries.insert(1, named("a", b"9 path=b\n", tarfile.XGLTYPE)), "not a regular file"),
        (lambda entries: entries.insert(1, named("manifest.json.sig", bytes(2000))), "more than 1024"),
        (lambda entries: entries.insert(1, named("x", b"11 mode=77\n", tarfile.XHDTYPE)), "header in it sets mode"),
        (lambda entries: entries.insert(1, named("x", b"999 path=b\n", tarfile.XHDTYPE)), "cannot be read"),
        (lambda entries: entries.insert(1, named("x", b"10 size=-5\n", tarfile.XHDTYPE)), ""),
        (lambda entries: entries.insert(1, named("x", bytes(70_000), tarfile.XHDTYPE)), "more than 65536"),
        (lambda entries: entries.insert(0, named("manifest.json", bytes((16 << 20) + 1))), "more than 16777216"),
        (lambda entries: entries.__setitem__(0, named("manifest.json", b"{}")), "manifest.json is not"),
    ],
)
def test_tar_files_that_are_refused(packed: Path, tmp_path: Path, change: Change, problem: str) -> None:
    entries = members(packed)
    change(entries)
    assert_refused(write(tmp_path / "bad.tar", entries), tmp_path, problem)
    assert not Path("/tmp/outside").exists()


def test_a_size_other_than_listed_is_refused(packed: Path, tmp_path: Path) -> None:
    (first, text), (second, data), *others = members(packed)
    entries = [(first, text), named(second.name, data + b"x"), *others]
    assert_refused(write(tmp_path / "bad.tar", entries), tmp_path, f"{second.name} has {len(data) + 1} bytes")


def test_what_is_no_whole_tar_file_is_refused(packed: Path, tmp_path: Path) -> None:
    sound = packed.read_bytes()
    source = random.Random(0)
    end = max(offset for offset in range(len(sound)) if sound[offset]) + 1
    for length in (0, 1, 511, 512, *(source.randrange(end) for _ in range(30))):
        packed.write_bytes(sound[:length])
        assert_refused(packed, tmp_path)
    packed.write_bytes(sound + b"x")
    assert_refused(packed, tmp_path, "behind its end")
    packed.write_bytes(source.randbytes(4096))
    assert_refused(packed, tmp_path, "no tar file")
    (tmp_path / "link.tar").symlink_to(packed)
    assert_refused(tmp_path / "link.tar", tmp_path, "is a link")


def test_another_digest_than_the_pinned_one_is_refused(root: Path, packed: Path, tmp_path: Path) -> None:
    for source in (root, packed):
        assert_refused(source, tmp_path, "its digest is sha256:", digest=f"sha256:{'0' * 64}")
        finished = dfc("pull", f"{source}@sha256:{'0' * 64}", "-o", tmp_path / "pulled")
        assert_fails(finished, 1, "its digest is sha256:")


def test_what_is_there_is_replaced_with_force_only(root: Path, packed: Path, tmp_path: Path) -> None:
    before = packed.read_bytes()
    assert_fails(dfc("push", root, packed), 1, "--force")
    assert dfc("push", root, packed, "--force").returncode == 0
    assert packed.read_bytes() == before
    assert_fails(dfc("pull", packed, "-o", root), 1, "--force")
    assert dfc("pull", packed, "-o", root, "--force").returncode == 0
    (tmp_path / "folder.tar").mkdir()
    assert_fails(dfc("push", root, tmp_path / "folder.tar", "--force"), 1, "not a regular file")


def test_command_lines_that_mean_nothing(root: Path, packed: Path, tmp_path: Path) -> None:
    assert_fails(dfc("push", root, tmp_path / "x.zip"), 2, ".tar")
    assert_fails(dfc("push", root, tmp_path / "x.tar", "--plain-http"), 2, "--plain-http")
    assert_fails(dfc("push", root, "oci://registry.example/a:b", "--force"), 2, "--force")
    assert_fails(dfc("pull", packed, "-o", tmp_path / "y", "--plain-http"), 2, "--plain-http")
    assert_fails(dfc("pull", tmp_path / "none.tar", "-o", tmp_path / "y"), 2, "none.tar", "neither")
    assert_fails(dfc("pull", f"{packed}@sha256:12", "-o", tmp_path / "y"), 2, "sha256:12")
    assert_fails(dfc("push", root, tmp_path / "no" / "x.tar"), 1, "x.tar")


def test_a_damaged_artifact_is_not_packed(root: Path, tmp_path: Path) -> None:
    flip_bit(root / "weights/target/model.safetensors", 1)
    assert_fails(dfc("push", root, tmp_path / "x.tar"), 1, "model.safetensors", "SHA-256")
    assert not list(tmp_path.glob("*.tar"))


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_pull_leaves_nothing_in_the_place(reference_artifact: Artifact, tmp_path: Path, seed: int) -> None:
    """At a random moment; the next pull removes what is left."""
    file, output = tmp_path / "reference.tar", tmp_path / "here" / "pulled"
    pack(reference_artifact, file)
    with subprocess.Popen([DFC, "pull", file, "-o", output], stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob("here/.pulled.*.partial")) and process.poll() is None:
            time.sleep(0.001)
        time.sleep(random.Random(seed).random() * 0.05)
        process.send_signal(signal.SIGKILL)
    if not output.exists():
        receive(file, output)
    assert content(output) == content(reference_artifact.root)
    assert [path.name for path in output.parent.iterdir() if not path.name.endswith(".lock")] == ["pulled"]
