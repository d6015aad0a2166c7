"""The file of key-encrypting keys: one a line, the current one first.

A line is 32 random bytes in Base64, as `openssl rand -base64 32` prints them; one that begins with
# is a remark. The file is read at each use and replaced as a whole, so every process sees a key
that was added, or mounted, without a restart. Whoever writes it holds a lock on its folder, so that
no key is lost between two. Not here: what is encrypted (`envelope_encryption`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from app.ports.value_encryption import KeyUnavailable

KEY_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 64 << 10
_ID_CHARACTERS: Final = 16
_REMARK: Final = (
    "# Key-encrypting keys of Lowtide, the current one first. Without them the secrets in the\n"
    "# database cannot be read: keep a copy, and never beside a backup of the database.\n"
)
_LOCK_SECONDS_MAX: Final = 10.0
_LOCK_PAUSE_SECONDS: Final = 0.02
_MOUNTED: Final = Path("/run/secrets")
"""Where Compose and Swarm mount secrets; the container alone decides who reads them there."""


@dataclass(frozen=True)
class EncryptionKey:
    """One key, and the id that rows name it by."""

    id: str
    secret: bytes = field(repr=False)


class KeyFile:
    """All methods raise KeyUnavailable for a file that cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> tuple[EncryptionKey, ...]:
        """The keys; none where there is no file."""
        try:
            with self._path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if mode & 0o077 and not self._path.is_relative_to(_MOUNTED):
                    raise KeyUnavailable(
                        f"Others than its owner may read the key file {self._path}; "
                        f"chmod 600 {self._path}"
                    )
                text = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise KeyUnavailable(
                f"The key file {self._path} cannot be read: {error.strerror or error}."
            ) from error
        if len(text) > _FILE_BYTES_MAX:
            raise KeyUnavailable(f"The key file {self._path} is larger than 64 KiB: it is no key.")
        lines = enumerate(text.decode("ascii", "replace").splitlines(), 1)
        written = [(number, line.strip()) for number, line in lines]
        return tuple(self._key(*one) for one in written if one[1] and not one[1].startswith("#"))

    def add(self) -> EncryptionKey:
        """Make a key and write it before the others."""
        with self._alone() as folder:
            return self._add(self.read(), folder)

    def add_first(self) -> None:
        """Make a key where there is none; whoever else does it at the same time finds this one."""
        with self._alone() as folder:
            if not self.read():
                self._add((), folder)

    def keep(self, ids: Sequence[str]) -> None:
        """Remove all keys but the first and those with these ids."""
        with self._alone() as folder:
            now = self.read()
            kept = tuple(key for number, key in enumerate(now) if number == 0 or key.id in ids)
            if kept != now:
                self._write(kept, folder)

    def _add(self, others: Sequence[EncryptionKey], folder: int) -> EncryptionKey:
        made = key_of(secrets.token_bytes(KEY_BYTES))
        self._write((made, *others), folder)
        return made

    def _key(self, number: int, line: str) -> EncryptionKey:
        try:
            secret = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if len(secret) != KEY_BYTES:
            raise KeyUnavailable(
                f"Line {number} of the key file {self._path} is no key: write {KEY_BYTES} bytes in "
                "Base64, as `openssl rand -base64 32` prints them, or restore the file."
            )
        return key_of(secret)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """The folder's handle, locked against other writers of the file, of this process too."""
        try:
            with contextlib.suppress(FileExistsError):
                self._path.parent.mkdir(parents=True, mode=0o700)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._lock(folder)
            yield folder
        finally:
            os.close(folder)

    def _lock(self, folder: int) -> None:
        """Writing takes milliseconds: whoever holds it for long has been stopped."""
        until = time.monotonic() + _LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > until:
                    raise KeyUnavailable(
                        f"The key file {self._path} is being written by another program, which "
                        "does not get done; try again, or end that program."
                    ) from error
                time.sleep(_LOCK_PAUSE_SECONDS)
            except OSError as error:
                raise self._unwritable(error) from error
            else:
                return

    def _unwritable(self, error: OSError) -> KeyUnavailable:
        return KeyUnavailable(
            f"The key file {self._path} cannot be written: {error.strerror or error}. Where it "
            "is mounted, put a new key in its first line by hand (`openssl rand -base64 32`)."
        )

    def _write(self, keys: Sequence[EncryptionKey], folder: int) -> None:
        """All at once: a crash or a full disk leaves the file of before."""
        text = _REMARK + "".join(f"{base64.b64encode(key.secret).decode()}\n" for key in keys)
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            handle = os.open(draft, flags, 0o600)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(self._path)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
            os.fsync(folder)
        except OSError as error:
            raise self._unwritable(error) from error


def key_of(secret: bytes) -> EncryptionKey:
    """The key with its id, which tells nothing of it."""
    told = hashlib.sha256(b"lowtide key-encrypting key\0" + secret).hexdigest()
    return EncryptionKey(told[:_ID_CHARACTERS], secret)
