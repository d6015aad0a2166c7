"""AES-256-GCM twice: the value under a data key of its own, that key under the current one.

So a new key-encrypting key touches no value, and no two values share a key. Nonces are random: each
data key encrypts once. Not here: where the keys are (`key_file`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.adapters.encryption.key_file import KEY_BYTES, EncryptionKey, KeyFile
from app.ports.value_encryption import KeyUnavailable, SealedValue, SealedValueChanged

DEFAULT_KEY_FILE: Final = "secrets.key"
_NONCE_BYTES: Final = 12
"""NIST SP 800-38D, 8.2: what GCM is made for; 8.3: at most 2^32 random ones under one key."""


class EnvelopeEncryption:
    """Implements `app.ports.value_encryption.ValueEncryption`."""

    def __init__(self, key_file: KeyFile) -> None:
        self._file = key_file

    def seal(self, value: bytes, context: Sequence[str]) -> SealedValue:
        """Encrypt under the current key."""
        key, data_key = self._current(), secrets.token_bytes(KEY_BYTES)
        content = _encrypted(data_key, value, _bound_to(context))
        return SealedValue(key.id, _encrypted(key.secret, data_key, _bound_to([key.id])), content)

    def open(self, sealed: SealedValue, context: Sequence[str]) -> bytes:
        """The value. Raises SealedValueChanged where it is not the one of this context."""
        return _decrypted(self._data_key(sealed), sealed.content, _bound_to(context))

    def rewrap(self, sealed: SealedValue) -> SealedValue:
        """The same content, its data key under the current key. Raises SealedValueChanged."""
        key, data_key = self._current(), self._data_key(sealed)
        wrapped = _encrypted(key.secret, data_key, _bound_to([key.id]))
        return SealedValue(key.id, wrapped, sealed.content)

    def key_ids(self) -> tuple[str, ...]:
        """The keys that are there, the current one first; empty where there is no file yet."""
        return tuple(key.id for key in self._file.read())

    def make_key(self) -> str:
        """Make another key and let it be the current one; the id. The former ones stay."""
        return self._file.add().id

    def make_first_key(self) -> None:
        """Make a key where there is none yet; once, however many ask for it at the same time."""
        self._file.add_first()

    def drop_keys(self, kept: Sequence[str]) -> None:
        """Remove every key but these and the current one."""
        self._file.keep(kept)

    def _current(self) -> EncryptionKey:
        keys = self._file.read()
        if not keys:
            raise KeyUnavailable("There is no key to encrypt with: its file is not there.")
        return keys[0]

    def _data_key(self, sealed: SealedValue) -> bytes:
        key = next((one for one in self._file.read() if one.id == sealed.key_id), None)
        if key is None:
            raise KeyUnavailable(f"The key {sealed.key_id} is not in the key file.")
        return _decrypted(key.secret, sealed.wrapped_key, _bound_to([key.id]))


def key_file_path(key_file: Path | None, state_dir: Path) -> Path:
    """The file that was named, else the one in the state folder."""
    return key_file or state_dir / DEFAULT_KEY_FILE


def open_encryption(key_file: Path | None, state_dir: Path) -> EnvelopeEncryption:
    """Under the keys of this file, by default one in the state folder; it is read at each use."""
    return EnvelopeEncryption(KeyFile(key_file_path(key_file, state_dir)))


def _bound_to(context: Sequence[str]) -> bytes:
    """As JSON: two contexts that differ never have the same bytes."""
    return json.dumps(list(context), ensure_ascii=True, separators=(",", ":")).encode()


def _encrypted(key: bytes, content: bytes, context: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, content, context)


def _decrypted(key: bytes, content: bytes, context: bytes) -> bytes:
    nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, rest, context)
    except (InvalidTag, ValueError):
        raise SealedValueChanged("What is stored is not what was encrypted here.") from None
