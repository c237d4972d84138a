"""Pushes and pulls that are killed or cut at random moments go on where they stopped."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest

from dfc.artifacts import Artifact
from dfc.artifacts.publishing.pull import pull
from dfc.artifacts.publishing.push import push
from dfc.artifacts.publishing.reference import Reference
from dfc.artifacts.publishing.registry import Repository
from tests.artifacts.samples import content
from tests.cli.process import DFC
from tests.publishing.service import Proxy, Service

pytestmark = pytest.mark.xdist_group("registry")

A_FILE = 2000
"""More bytes than the questions and answers beside one file's content."""


def reference(host: str) -> Reference:
    return Reference.parse(f"oci://{host}/model:v1")


def repository(host: str) -> Repository:
    return Repository(reference(host), plain_http=True)


def kill(proxy: Proxy, stop_after: int, *arguments: object) -> None:
    """Run a command, and kill it when so many bytes have passed."""
    proxy.reset(stop_after=stop_after)
    with subprocess.Popen([DFC, *map(str, arguments), "--plain-http"], stderr=subprocess.PIPE) as process:
        assert proxy.stopped.wait(60), process.communicate(timeout=10)
        process.send_signal(signal.SIGKILL)
    proxy.reset()


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_pull_fetches_the_rest_only(
    service: Service, proxy: Proxy, reference_artifact: Artifact, tmp_path: Path, seed: int
) -> None:
    push(reference_artifact, repository(service.host), "v1")
    files = content(reference_artifact.root)
    total = sum(map(len, files.values()))
    output, source = tmp_path / "here" / "pulled", random.Random(seed)
    stop = source.randrange(len(files["manifest.json"]) + 10_000, total)
    for _ in range(2):
        kill(proxy, stop, "pull", reference(proxy.host), "-o", output)
        assert not output.exists()
        stop = source.randrange(10_000, total - stop)
    (partial,) = output.parent.glob(".pulled.*.pull")
    there = sum(map(len, content(partial).values()))
    assert there
    pull(reference(proxy.host), repository(proxy.host), output)
    assert content(output) == files
    assert total - there < proxy.down < total - there + A_FILE * len(files)
    assert [path.name for path in output.parent.iterdir()] == ["pulled"]


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_push_sends_the_rest_only(
    service: Service, proxy: Proxy, reference_artifact: Artifact, tmp_path: Path, seed: int
) -> None:
    files = content(reference_artifact.root)
    total = sum(map(len, files.values()))
    stop = random.Random(seed).randrange(10_000, total)
    kill(proxy, stop, "push", reference_artifact.root, reference(proxy.host))
    there = sum(path.stat().st_size for path in service.root.glob("docker/registry/v2/blobs/**/data"))
    # The file under way is lost; what came before it is not, and a tag means a whole artifact.
    largest = max(map(len, files.values()))
    assert there >= stop - largest - A_FILE * len(files)
    assert not list(service.root.glob("docker/registry/v2/repositories/model/_manifests/tags/*"))
    push(reference_artifact, repository(proxy.host), "v1")
    assert total - there <= proxy.up < total - there + A_FILE * len(files) + 20_000
    pull(reference(service.host), repository(service.host), tmp_path / "pulled")
    assert content(tmp_path / "pulled") == files


@pytest.mark.parametrize("seed", range(5))
def test_a_pull_whose_connection_is_cut_goes_on_by_itself(
    service: Service, proxy: Proxy, reference_artifact: Artifact, tmp_path: Path, seed: int
) -> None:
    push(reference_artifact, repository(service.host), "v1")
    files = content(reference_artifact.root)
    total = sum(map(len, files.values()))
    proxy.reset(cut_after=random.Random(seed).randrange(len(files["manifest.json"]) + 10_000, total))
    pull(reference(proxy.host), repository(proxy.host), tmp_path / "pulled")
    assert content(tmp_path / "pulled") == files
    # What was in the connection when it was cut comes twice.
    assert proxy.down < total + (1 << 20) + A_FILE * len(files)


def test_what_a_killed_pull_left_is_not_trusted(
    service: Service, proxy: Proxy, reference_artifact: Artifact, tmp_path: Path
) -> None:
    from dfc.artifacts.publishing.errors import PublishingError

    push(reference_artifact, repository(service.host), "v1")
    output = tmp_path / "here" / "pulled"
    total = sum(map(len, content(reference_artifact.root).values()))
    kill(proxy, total * 2 // 3, "pull", reference(proxy.host), "-o", output)
    (partial,) = output.parent.glob(".pulled.*.pull")
    largest = max(partial.rglob("*.safetensors"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.write(b"\xff")
    with pytest.raises(PublishingError, match="not what its digest says"):
        pull(reference(proxy.host), repository(proxy.host), output)
    assert not list(output.parent.iterdir())
    pull(reference(proxy.host), repository(proxy.host), output)
    assert content(output) == content(reference_artifact.root)
