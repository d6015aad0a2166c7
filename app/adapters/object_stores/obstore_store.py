"""The object store port on obstore: folders, S3 and Google Cloud Storage.

Here: the operations, and obstore's errors in the port's words. Not here: addresses and clients
(`store_address`), what the keys mean, or the agent's own view of a store
(`trainer.agent.checkpoints.storage_root`), which streams checkpoints.
"""

from __future__ import annotations

import errno
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from app.adapters.object_stores.store_address import (
    StoreAddress,
    bucket_region,
    open_client,
    parse_address,
)
from app.ports.object_store import (
    ObjectExists,
    ObjectMissing,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreFull,
    StoreMissing,
)

STORES_KEPT: Final = 32
_CREATE_TRIES: Final = 3
_CREATE_PAUSE_SECONDS: Final = 0.5
_RIGHTS: Final = {
    "s3": "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket",
    "gs": "roles/storage.objectUser",
    "file": "read and write",
}
# What stores say in the middle of an error that has no type of its own.
_DENIED_SIGNS: Final = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "SignatureDoesNot",
                        "InvalidAccessKeyId", "ExpiredToken")  # fmt: skip
# How Rust writes ENOSPC and EDQUOT, in an error of obstore's that has no type of its own.
_FULL_SIGNS: Final = ("(os error 28)", "(os error 122)")
# A store's word, or obstore's own, for a range that begins at the end or beyond it.
_BEYOND_SIGNS: Final = ("416 Range Not Satisfiable", "InvalidRange")
_REGION_SIGNS: Final = ("incorrectly configured region", "AuthorizationHeaderMalformed",
                        "PermanentRedirect")  # fmt: skip
_NO_CREDENTIALS_SIGNS: Final = ("169.254.169.254", "metadata.google.internal", "credential",
                                "token request")  # fmt: skip


def open_object_store(uri: str, options: Mapping[str, Any] | None = None) -> ObstoreStore:
    """The store with its root at `uri`. Raises ObjectStoreError for one that cannot be used.

    options: obstore's settings of the cloud's store (endpoint, region, …); what they leave out is
    taken from the environment. Nothing is opened or asked before the first use.
    """
    return ObstoreStore(parse_address(uri), options or {})


def open_with_values(uri: str, values: Mapping[str, str]) -> ObstoreStore:
    """The store as one who has only a credential that was issued for it sees it."""
    return open_object_store(uri, values_as_options(uri, values))


def values_as_options(uri: str, values: Mapping[str, str]) -> dict[str, str]:
    """A credential, as `app.ports.storage_grants` has its values, in obstore's words."""
    if uri.startswith("gs://"):
        return {"bearer_token": values["token"]}
    keys = {name: values[name] for name in ("access_key_id", "secret_access_key")}
    return {**keys, "session_token": values["token"]}


def kept_stores(most: int = STORES_KEPT) -> Callable[[str], ObstoreStore]:
    """`open_object_store` that keeps those asked for last: a file is read in many pieces.

    A store asks the cloud for its credentials once and renews them by itself, and its connections
    stay open; a new one for each piece would begin with neither.
    """
    return functools.lru_cache(maxsize=most)(open_object_store)


@dataclass(frozen=True, slots=True)
class _Opened:
    """obstore, its errors, the store, and the same store without retries of its own."""

    obstore: Any
    exceptions: Any
    store: Any
    once: Any


class ObstoreStore:
    """Implements `app.ports.object_store.ObjectStore`; safe to share between threads.

    A folder is made, and obstore loaded, when the store is first used: most programs hold a store
    that they never open.
    """

    def __init__(self, address: StoreAddress, options: Mapping[str, Any]) -> None:
        self._address = address
        self._options = options
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

    def put_new(self, key: str, content: bytes) -> None:
        """Create; raises ObjectExists when the key is taken.

        When an answer is lost, the object is looked at: ours is there, another's, or none and the
        write is repeated. So ObjectExists never speaks of our own write.
        """
        for further in reversed(range(_CREATE_TRIES)):
            try:
                with self._open(key) as opened:
                    opened.obstore.put(opened.once, key, content, mode="create")
                return
            except (ObjectExists, ObjectMissing, ObjectStoreDenied, StoreMissing):
                raise
            except ObjectStoreError:
                if self._address.scheme == "file" or further == 0:
                    raise
            time.sleep(_CREATE_PAUSE_SECONDS)
            there = self._content_or_none(key)
            if there == content:
                return
            if there is not None:
                raise ObjectExists(self._say(key, "there is an object already"))

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissing."""
        with self._open(key) as opened:
            return bytes(opened.obstore.get(opened.store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`, fewer at the end, none beyond it.

        One request; a second one asks for the object's size where the store refuses the range.
        """
        if start < 0 or length < 0:
            raise ValueError(f"{key}: cannot read {length} bytes from {start}")
        with self._open(key) as opened:
            if length == 0:
                opened.obstore.head(opened.store, key)  # an object that is missing is told of
                return b""
            try:
                read = opened.obstore.get_range(opened.store, key, start=start, length=length)
            except opened.exceptions.BaseError as error:
                # To begin at the end is an error to a store, not to our callers.
                if not any(sign in str(error) for sign in _BEYOND_SIGNS):
                    raise
                if opened.obstore.head(opened.store, key)["size"] > start:
                    raise
                return b""
            return bytes(read)

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`, sorted; all of them for the empty one."""
        with self._open(prefix) as opened:
            pages = opened.obstore.list(opened.store, prefix=prefix.rstrip("/") or None)
            keys = sorted(entry["path"] for page in pages for entry in page)
        return iter(keys)

    def delete(self, key: str) -> None:
        """Remove; nothing happens when the key is absent."""
        try:
            with self._open(key) as opened:
                opened.obstore.delete(opened.store, key)
        except ObjectMissing:
            pass

    def _content_or_none(self, key: str) -> bytes | None:
        try:
            return self.get(key)
        except ObjectMissing:
            return None

    @contextmanager
    def _open(self, key: str) -> Iterator[_Opened]:
        """What obstore raises comes out in the port's words."""
        opened = self._opened or self._first_use()
        exceptions = opened.exceptions
        try:
            yield opened
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ObjectExists(self._say(key, "there is an object already")) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError | exceptions.NotFoundError)
            refused = isinstance(
                error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
            )
            raise self._translated(key, error, missing, refused) from error

    def _translated(
        self, key: str, error: Exception, missing: bool, refused: bool
    ) -> ObjectStoreError:
        told, place = str(error), self._address.place
        if self._address.scheme == "file" and any(sign in told for sign in _FULL_SIGNS):
            return ObjectStoreFull(self._say(key, f"the disk of {place} is full"))
        if "NoSuchBucket" in told or "bucket does not exist" in told:
            return StoreMissing(
                self._say(key, f"{place} does not exist; make it, or correct the address")
            )
        if any(sign in told for sign in _REGION_SIGNS):
            region = bucket_region(self._address.bucket) or "the bucket's own"
            return ObjectStoreError(
                self._say(key, f"{place} is in another region; set AWS_REGION to {region}")
            )
        if missing:
            return ObjectMissing(self._say(key, "there is no such object"))
        if refused or any(sign in told for sign in _DENIED_SIGNS):
            rights = _RIGHTS[self._address.scheme]
            return ObjectStoreDenied(self._say(key, f"access to {place} is denied; allow {rights}"))
        if self._address.scheme != "file" and any(s in told for s in _NO_CREDENTIALS_SIGNS):
            return ObjectStoreDenied(
                self._say(key, f"there are no credentials for {place}: {_first_line(error)}")
            )
        return ObjectStoreError(self._say(key, _first_line(error)))

    def _first_use(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                import obstore
                from obstore import exceptions

                try:
                    if self._address.scheme == "file":
                        _make_private(Path(self._address.path))
                    store = open_client(self._address, self._options)
                    once = open_client(self._address, self._options, retries=0)
                except (OSError, exceptions.BaseError) as error:
                    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
                    raise (ObjectStoreFull if full else ObjectStoreError)(
                        f"the object store in {self._address.place} cannot be opened: "
                        f"{_first_line(error)}"
                    ) from error
                self._opened = _Opened(obstore, exceptions, store, once)
            return self._opened

    def _say(self, key: str, what: str) -> str:
        return f"object store {self._address.uri}, key {key!r}: {what}"


def _make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing; what they will hold is for us alone."""
    for one in reversed((folder, *folder.parents)):
        one.mkdir(mode=0o700, exist_ok=True)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
