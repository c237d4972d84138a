"""`dfc sign` and `dfc verify --key`: who vouches for an artifact."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dfc.artifacts import open_artifact
from tests.artifacts.samples import write_tensor_artifact
from tests.cli.damage import flip_bit
from tests.cli.process import assert_fails, dfc
from tests.paths import ROOT

SIGNATURE = "manifest.json.sig"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_tensor_artifact(tmp_path / "artifact")


def write_keys(folder: Path, name: str, key: Any = None, password: bytes | None = None) -> tuple[Path, Path]:
    key = key or Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(pem, pkcs8, lock))
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_what_is_signed_verifies_and_opens(root: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "mine")
    assert dfc("sign", root, "--key", private).returncode == 0
    finished = dfc("verify", root, "--key", public)
    assert finished.returncode == 0, finished.stdout
    assert dfc("verify", root).returncode == 0
    assert open_artifact(root).root == root
    first = (root / SIGNATURE).read_bytes()
    assert dfc("sign", root, "--key", private).returncode == 0
    assert (root / SIGNATURE).read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact", "mine.pem", "mine.pub"]


def problem(root: Path, public: Path) -> str:
    finished = dfc("verify", root, "--key", public, "--json")
    assert finished.returncode == 1
    found = {entry["name"]: entry["problem"] for entry in json.loads(finished.stdout)["files"] if entry["problem"]}
    assert list(found) == [SIGNATURE]
    return str(found[SIGNATURE])


def test_another_key_no_signature_and_a_signature_of_another_artifact(root: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "mine")
    _, other = write_keys(tmp_path, "other")
    assert "nobody has signed" in problem(root, public)
    assert dfc("sign", root, "--key", private).returncode == 0
    assert "other.pub" in problem(root, other)
    # The whole manifest made anew, with digests that fit.
    document = json.loads((root / "manifest.json").read_text())
    from dfc.artifacts import Manifest

    document["model"]["name"] = "another"
    (root / "manifest.json").write_text(Manifest.model_validate(document).sealed().to_json())
    assert dfc("verify", root).returncode == 0
    assert "not a signature of this manifest.json" in problem(root, public)


def test_any_flipped_bit_of_a_signature_is_found(root: Path, tmp_path: Path) -> None:
    from dfc.artifacts.signature import signature_problem

    private, public = write_keys(tmp_path, "mine")
    assert dfc("sign", root, "--key", private).returncode == 0
    for seed in range(200):
        sound = flip_bit(root / SIGNATURE, seed)
        assert signature_problem(root, public) is not None, seed
        (root / SIGNATURE).write_bytes(sound)
    assert signature_problem(root, public) is None


def test_a_damaged_artifact_is_not_signed(root: Path, tmp_path: Path) -> None:
    private, _ = write_keys(tmp_path, "mine")
    flip_bit(root / "weights/target/model.safetensors", 1)
    assert_fails(dfc("sign", root, "--key", private), 1, "is not signed", "model.safetensors")
    assert not (root / SIGNATURE).exists()


def test_keys_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path, "mine")
    curve, curve_public = write_keys(tmp_path, "curve", ec.generate_private_key(ec.SECP256R1()))
    locked, _ = write_keys(tmp_path, "locked", password=b"secret")
    (tmp_path / "noise").write_bytes(b"\xff\0")
    assert_fails(dfc("sign", root, "--key", public), 1, "mine.pub", "private key")
    assert_fails(dfc("sign", root, "--key", curve), 1, "curve.pem", "Ed25519")
    assert_fails(dfc("sign", root, "--key", locked), 1, "locked.pem", "encrypted")
    assert_fails(dfc("sign", root, "--key", tmp_path / "noise"), 1, "noise", "private key")
    assert_fails(dfc("verify", root, "--key", private), 1, "mine.pem", "public key")
    assert_fails(dfc("verify", root, "--key", curve_public), 1, "curve.pub", "Ed25519")
    assert_fails(dfc("sign", root), 2, "--key")
    assert not (root / SIGNATURE).exists()


def test_other_commands_do_not_import_cryptography() -> None:
    code = "import sys, dfc.runtime.cli.main; print('cryptography' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "False"
