"""Digests of exported files, and a signature over them that anybody can check.

``SHA256SUMS`` is what ``sha256sum -c`` reads. ``SHA256SUMS.sig`` is an Ed25519 signature (RFC 8032)
of that file, 64 bytes::

    openssl pkeyutl -verify -pubin -inkey KEY.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig

Signing needs the package ``cryptography`` (the optional extra ``export``); digests need nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from trainer.training.training_errors import ConfigError

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
_READ_BYTES = 1 << 20


def write_digests(folder: Path, names: list[str]) -> Path:
    """Writes the digest of each named file of ``folder``, in the order of their names."""
    lines = [f"{file_digest(folder / name)}  {name}\n" for name in sorted(names)]
    path = folder / SUMS
    path.write_text("".join(lines))
    return path


def sign(folder: Path, key_file: Path) -> Path:
    """Signs the digests with the Ed25519 private key in ``key_file`` (PEM, not encrypted).

    Raises ``ConfigError``: the package or the key cannot be used.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigError(
            "--sign needs the package `cryptography`; pip install 'lowtide[export]'"
        ) from error
    try:
        key = load_pem_private_key(key_file.read_bytes(), password=None)
    except OSError as error:
        raise ConfigError(f"--sign: cannot read {key_file}: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"--sign: {key_file} is no private key in PEM: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"--sign: {key_file} is not an Ed25519 key;"
            " make one with `openssl genpkey -algorithm ed25519 -out KEY`"
        )
    path = folder / SIGNATURE
    path.write_bytes(key.sign((folder / SUMS).read_bytes()))
    return path


def file_digest(path: Path) -> str:
    """SHA-256 in hex of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()
