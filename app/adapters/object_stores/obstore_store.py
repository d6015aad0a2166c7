"""The object store port on obstore: `file://` folders.

Here: addresses, and obstore's errors in the port's words. Not here: what the keys mean, or the
agent's own view of a store (`trainer.agent.object_store`), which streams checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from app.ports.object_store import ObjectExists, ObjectMissing, ObjectStoreError

_CLOUD_STORES = {"s3": "S3", "gs": "Google Cloud Storage"}


def open_object_store(uri: str) -> ObstoreStore:
    """The store with its root at `uri`. Raises ObjectStoreError for one that cannot be used."""
    parts = urlsplit(uri)
    if parts.scheme in _CLOUD_STORES:
        raise ObjectStoreError(
            f"{uri}: stores in {_CLOUD_STORES[parts.scheme]} are not available yet; "
            "use a file:// folder"
        )
    root = Path(unquote(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not root.is_absolute():
        raise ObjectStoreError(f"{uri}: not the address of a store; use file:///absolute/folder")
    return ObstoreStore(root)


class ObstoreStore:
    """Implements `app.ports.object_store.ObjectStore` on a folder; safe to share between threads.

    The folder is made, and obstore loaded, when the store is first used: most programs hold a
    store that they never open.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._opened: tuple[Any, Any, Any] | None = None

    def put_new(self, key: str, content: bytes) -> None:
        """Create; raises ObjectExists when the key is taken."""
        with self._open(key) as (obstore, store):
            obstore.put(store, key, content, mode="create")

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissing."""
        with self._open(key) as (obstore, store):
            return bytes(obstore.get(store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start`, fewer at the end, none beyond it."""
        if start < 0 or length < 0:
            raise ValueError(f"{key}: cannot read {length} bytes from {start}")
        with self._open(key) as (obstore, store):
            # Ranges that are empty or begin at the end are errors to a store, not to our callers.
            there = max(0, min(length, obstore.head(store, key)["size"] - start))
            if there == 0:
                return b""
            return bytes(obstore.get_range(store, key, start=start, length=there))

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`, sorted; all of them for the empty one."""
        with self._open(prefix) as (obstore, store):
            pages = obstore.list(store, prefix=prefix.rstrip("/") or None)
            keys = sorted(entry["path"] for page in pages for entry in page)
        return iter(keys)

    def delete(self, key: str) -> None:
        """Remove; nothing happens when the key is absent."""
        try:
            with self._open(key) as (obstore, store):
                obstore.delete(store, key)
        except ObjectMissing:
            pass

    @contextmanager
    def _open(self, key: str) -> Iterator[tuple[Any, Any]]:
        """obstore and the store; what they raise comes out in the port's words."""
        obstore, exceptions, store = self._opened or self._first_use()
        try:
            yield obstore, store
        except exceptions.AlreadyExistsError:
            raise ObjectExists(self._say(key, "there is an object already")) from None
        except (FileNotFoundError, exceptions.NotFoundError):
            raise ObjectMissing(self._say(key, "there is no such object")) from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise ObjectStoreError(self._say(key, _first_line(error))) from error

    def _first_use(self) -> tuple[Any, Any, Any]:
        with self._lock:
            if self._opened is None:
                import obstore
                from obstore import exceptions
                from obstore.store import LocalStore

                try:
                    _make_private(self._root)
                    self._opened = obstore, exceptions, LocalStore(self._root)
                except (OSError, exceptions.BaseError) as error:
                    raise ObjectStoreError(
                        f"the object store in {self._root} cannot be opened: {_first_line(error)}"
                    ) from error
            return self._opened

    def _say(self, key: str, what: str) -> str:
        return f"object store {self._root.as_uri()}, key {key!r}: {what}"


def _make_private(folder: Path) -> None:
    """Make the folder and those above it that are missing; what they will hold is for us alone."""
    for one in reversed((folder, *folder.parents)):
        one.mkdir(mode=0o700, exist_ok=True)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
