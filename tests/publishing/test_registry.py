"""`dfc push` and `dfc pull` with a real registry."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dfc.artifacts import Artifact
from tests.artifacts.samples import content, write_tensor_artifact
from tests.cli.damage import flip_bit
from tests.cli.process import assert_fails, dfc
from tests.end_to_end.decoding import build
from tests.publishing.service import Proxy, Service

pytestmark = pytest.mark.xdist_group("registry")

REPOSITORY = "team/model"


def push(artifact: Path, host: str, tag: str = "v1") -> str:
    """Push and return the reference with a digest."""
    finished = dfc("push", artifact, f"oci://{host}/{REPOSITORY}:{tag}", "--plain-http")
    assert finished.returncode == 0, finished.stderr
    return str(finished.stdout.decode().strip())


def pull(reference: str, output: Path, *options: str) -> Any:
    return dfc("pull", reference, "-o", output, "--plain-http", *options)


def test_what_is_pulled_is_what_was_pushed(service: Service, reference_artifact: Artifact, tmp_path: Path) -> None:
    pinned = push(reference_artifact.root, service.host)
    assert re.fullmatch(rf"oci://{service.host}/{REPOSITORY}@sha256:[0-9a-f]{{64}}", pinned)
    for number, reference in enumerate((f"oci://{service.host}/{REPOSITORY}:v1", pinned)):
        output = tmp_path / "here" / str(number)
        finished = pull(reference, output)
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.decode().strip() == pinned
        assert content(output) == content(reference_artifact.root)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["0", "1"]
    assert dfc("run", tmp_path / "here/0", "--prompt", "def f", "--max-new", 4).returncode == 0


def test_the_layers_are_what_the_format_says(service: Service, tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    digest = push(root, service.host).split("@")[1]
    text = service.get(f"/v2/{REPOSITORY}/manifests/v1")
    assert digest == f"sha256:{hashlib.sha256(text).hexdigest()}"
    document = json.loads(text)
    assert document["artifactType"] == "application/vnd.dfc.artifact.v1"
    titles = {layer["annotations"]["org.opencontainers.image.title"]: layer for layer in document["layers"]}
    files = content(root)
    assert titles.keys() == files.keys()
    for name, data in files.items():
        assert titles[name]["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert titles[name]["size"] == len(data)


def test_a_changed_drafter_sends_its_layers_only(
    service: Service, proxy: Proxy, reference: Path, tmp_path: Path
) -> None:
    draft = tmp_path / "changed" / "dflash2"
    shutil.copytree(reference / "dflash2", draft)
    first = build(tmp_path / "first", reference / "target", reference / "dflash2")
    push(first.root, proxy.host)
    everything = sum(map(len, content(first.root).values()))
    assert proxy.up > everything
    with (draft / "model.safetensors").open("r+b") as file:
        file.seek(-2, 2)
        last = file.read(1)
        file.seek(-2, 2)
        file.write(bytes([last[0] ^ 1]))
    second = build(tmp_path / "second", reference / "target", draft)
    before, after = content(first.root), content(second.root)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"manifest.json", "weights/dflash2/model.safetensors"}
    proxy.reset()
    push(second.root, proxy.host, "v2")
    wanted = sum(len(after[name]) for name in changed)
    # Every file costs a question, and the manifest is small.
    assert wanted < proxy.up < wanted + 1000 * len(after) + 20_000
    assert proxy.up < everything / 2
    proxy.reset()
    push(second.root, proxy.host, "v3")
    assert proxy.up < 1000 * len(after) + 20_000


def test_a_signature_travels_with_the_artifact(service: Service, tmp_path: Path) -> None:
    from tests.cli.test_sign import write_keys

    root = write_tensor_artifact(tmp_path / "artifact")
    private, public = write_keys(tmp_path, "mine")
    assert dfc("sign", root, "--key", private).returncode == 0
    assert pull(push(root, service.host), tmp_path / "pulled").returncode == 0
    assert dfc("verify", tmp_path / "pulled", "--key", public).returncode == 0


def test_an_artifact_that_is_there_is_replaced_with_force_only(service: Service, tmp_path: Path) -> None:
    root, other = write_tensor_artifact(tmp_path / "artifact"), tmp_path / "other"
    pinned = push(root, service.host)
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    assert_fails(pull(pinned, root), 1, "--force")
    assert_fails(pull(pinned, other, "--force"), 1, "not a dfc artifact")
    before = content(root)
    assert pull(pinned, root, "--force").returncode == 0
    assert content(root) == before
    assert content(other) == {"mine.txt": b"mine"}


def test_a_damaged_artifact_is_not_pushed(service: Service, tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    flip_bit(root / "weights/target/model.safetensors", 1)
    finished = dfc("push", root, f"oci://{service.host}/{REPOSITORY}:v1", "--plain-http")
    assert_fails(finished, 1, "model.safetensors", "SHA-256")
    assert not service.root.exists() or not list(service.root.rglob("data"))


def test_a_flipped_bit_in_the_registry_is_refused(service: Service, tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    pinned = push(root, service.host)
    folder = tmp_path / "here"
    for name, data in content(root).items():
        stored = service.blob(hashlib.sha256(data).hexdigest())
        for seed in range(3):
            sound = flip_bit(stored, f"{name}{seed}")
            assert_fails(pull(pinned, folder / "pulled"), 1, name, "not what its digest says")
            assert not folder.exists() or not list(folder.iterdir())
            stored.write_bytes(sound)
    assert pull(pinned, folder / "pulled").returncode == 0


def test_a_manifest_other_than_the_pinned_one_is_refused(service: Service, tmp_path: Path) -> None:
    pinned = push(write_tensor_artifact(tmp_path / "artifact"), service.host)
    missing = pinned[:-4] + ("0000" if not pinned.endswith("0000") else "1111")
    assert_fails(pull(missing, tmp_path / "here" / "pulled"), 1, missing, "not there")
    assert not (tmp_path / "here").exists()


Change = Callable[[list[dict[str, Any]], dict[str, Any]], None]


def _title(name: str) -> Change:
    def change(layers: list[dict[str, Any]], document: dict[str, Any]) -> None:
        layers[0]["annotations"]["org.opencontainers.image.title"] = name

    return change


def _size(layers: list[dict[str, Any]], document: dict[str, Any]) -> None:
    layers[2]["size"] += 1


def _kind(layers: list[dict[str, Any]], document: dict[str, Any]) -> None:
    document["artifactType"] = "application/vnd.example.other"


def _swap(layers: list[dict[str, Any]], document: dict[str, Any]) -> None:
    layers[1]["digest"], layers[2]["digest"] = layers[2]["digest"], layers[1]["digest"]


@pytest.mark.parametrize(
    "change, problem",
    [
        (_title("../outside"), "'../outside' is not a plain relative path"),
        (_title("/tmp/outside"), "is not a plain relative path"),
        (_title("a/./b"), "is not a plain relative path"),
        (_title(""), "is not a plain relative path"),
        (_title("tokenizer/tokenizer.json"), "two layers for tokenizer/tokenizer.json"),
        (_title("weights/extra"), "has no layer for manifest.json"),
        (lambda layers, _: layers.append({**layers[1], "annotations": {}}), "is not a plain relative path"),
        (
            lambda layers, _: layers.append(
                {**layers[1], "annotations": {"org.opencontainers.image.title": "tokenizer/extra"}}
            ),
            "tokenizer/extra is not listed",
        ),
        (lambda layers, _: layers.pop(2), "is missing among its layers"),
        (_size, "is not the file listed"),
        (_swap, "is not the file listed"),
        (_kind, "artifactType is application/vnd.example.other"),
        (lambda _, document: document.pop("artifactType"), "artifactType is none"),
    ],
)
def test_manifests_that_are_refused_before_anything_is_written(
    service: Service, tmp_path: Path, change: Change, problem: str
) -> None:
    push(write_tensor_artifact(tmp_path / "artifact"), service.host)
    document = json.loads(service.get(f"/v2/{REPOSITORY}/manifests/v1"))
    layers = document["layers"]
    change(layers, document)
    service.put_manifest(REPOSITORY, "bad", json.dumps(document).encode())
    finished = pull(f"oci://{service.host}/{REPOSITORY}:bad", tmp_path / "here" / "pulled")
    assert_fails(finished, 1, problem)
    assert not (tmp_path / "here").exists() or not list((tmp_path / "here").iterdir())
    assert not Path("/tmp/outside").exists()


@pytest.mark.parametrize(
    "reference",
    [
        "registry.example/model:v1",
        "oci://registry.example",
        "oci://registry.example/Model:v1",
        "oci://registry.example/model:",
        "oci://registry.example/model@sha256:12",
        "oci://registry.example/a/../b:v1",
        "oci://user@registry.example/model:v1",
        "oci:///model:v1",
        "oci://registry.example/model:v1\nx",
        "https://registry.example/model:v1",
    ],
)
def test_references_that_cannot_be_read(reference: str, tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    assert_fails(dfc("push", root, reference), 2, "oci://")
    assert_fails(dfc("pull", reference, "-o", tmp_path / "pulled"), 2, "oci://")


def test_a_push_needs_a_tag(tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    assert_fails(dfc("push", root, "oci://registry.example/model"), 2, "no tag")
    assert_fails(dfc("push", root, f"oci://registry.example/model@sha256:{'0' * 64}"), 2, "no tag")


def test_nobody_listens(tmp_path: Path) -> None:
    from tests.publishing.service import free_port

    root, host = write_tensor_artifact(tmp_path / "artifact"), f"127.0.0.1:{free_port()}"
    assert_fails(dfc("push", root, f"oci://{host}/model:v1", "--plain-http"), 1, host, "refused")
    assert_fails(pull(f"oci://{host}/model:v1", tmp_path / "pulled"), 1, host, "refused")


def test_a_registry_without_tls_says_what_to_do(service: Service, tmp_path: Path) -> None:
    root = write_tensor_artifact(tmp_path / "artifact")
    assert_fails(dfc("push", root, f"oci://{service.host}/model:v1"), 1, "--plain-http")
