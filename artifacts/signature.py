"""A detached Ed25519 signature over the manifest, whose digests cover every other file: who vouches for an artifact."""

import base64
import binascii
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from dfc.artifacts.bounded import read_bounded
from dfc.artifacts.errors import ArtifactError
from dfc.artifacts.manifest import MAX_MANIFEST_BYTES
from dfc.artifacts.paths import MANIFEST_NAME, SIGNATURE_NAME
from dfc.artifacts.replacing import replace_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAX_KEY_BYTES = 64 << 10
MAX_SIGNATURE_BYTES = 1 << 10


def write_signature(root: Path, key: Path) -> None:
    """Sign the manifest of an artifact directory with a private key in a PEM file; an earlier signature is replaced.

    Raises:
        ArtifactError: the key cannot be used, or the artifact cannot be read or written.
    """
    signature = _private_key(key).sign(read_bounded(root / MANIFEST_NAME, MAX_MANIFEST_BYTES))
    replace_file(root, SIGNATURE_NAME, base64.b64encode(signature) + b"\n")


def signature_problem(root: Path, key: Path) -> str | None:
    """Return why an artifact is not signed by the owner of a public key in a PEM file; None when it is.

    Raises:
        ArtifactError: the key cannot be used, or the artifact cannot be read.
    """
    public = _public_key(key)
    from cryptography.exceptions import InvalidSignature

    path = root / SIGNATURE_NAME
    if not path.is_symlink() and not path.exists():
        return "is missing: nobody has signed this artifact"
    text = read_bounded(path, MAX_SIGNATURE_BYTES)
    try:
        signature = base64.b64decode(text.removesuffix(b"\n"), validate=True)
    except binascii.Error:
        return "is not base64, as a signature is"
    # Unused bits of the last character would be a second text of the same signature.
    if base64.b64encode(signature) + b"\n" != text:
        return "is not written as dfc writes a signature"
    try:
        public.verify(signature, read_bounded(root / MANIFEST_NAME, MAX_MANIFEST_BYTES))
    except InvalidSignature:
        return f"is not a signature of this {MANIFEST_NAME} by the owner of {key}"
    return None


def _private_key(path: Path) -> "Ed25519PrivateKey":
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_pem_private_key(read_bounded(path, _MAX_KEY_BYTES), password=None)
    except TypeError:
        raise ArtifactError(f"{path} is encrypted; give a private key without a password") from None
    except Exception as error:
        raise _unusable(path, "private", error) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _other_kind(path, "private")
    return key


def _public_key(path: Path) -> "Ed25519PublicKey":
    serialization = _serialization()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_pem_public_key(read_bounded(path, _MAX_KEY_BYTES))
    except Exception as error:
        raise _unusable(path, "public", error) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _other_kind(path, "public")
    return key


def _other_kind(path: Path, name: str) -> ArtifactError:
    return ArtifactError(f"{path} is no Ed25519 key; give an Ed25519 {name} key in a PEM file")


def _unusable(path: Path, name: str, error: Exception) -> ArtifactError:
    if isinstance(error, ArtifactError):
        return error
    return ArtifactError(f"{path} is no {name} key; give an Ed25519 {name} key in a PEM file")


def _serialization() -> ModuleType:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise ArtifactError(f"signatures need {error.name}; install dfc with the extra 'publish'") from None
    return serialization
