"""The object store as the agent needs it: create-only writes, streamed reads, lists.

The only file that imports obstore, and only when a store is first opened, so that an idle agent
stays small. Not here: what the keys mean (`trainer.protocol.checkpoint_manifest`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse

STREAM_CHUNK_BYTES = 8 << 20
_REQUEST_TIMEOUT = "60s"
_PARTS_AT_ONCE = 4
_ADDRESSES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
}
"""What names a server in place of the cloud's own, to obstore and to `_speaks_http`."""


_DENIED_SIGNS = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "ExpiredToken")


class StoreUnavailable(Exception):
    """The store did not answer as it should; the message names the key. Worth another try."""


class StoreDenied(StoreUnavailable):
    """The machine has no credentials for the store, or they do not allow what was asked."""


class ObjectExists(Exception):
    """A create-only write met an object that is already there."""


class ObjectMissing(Exception):
    """No object under this key."""


class ObjectChanged(Exception):
    """The object under this key is another one than was asked for."""


@dataclass(frozen=True)
class ListedObject:
    """An object as a store lists it. etag: changes with its content; "" where none is told."""

    key: str
    size_bytes: int
    etag: str


class ObjectStore:
    """One root: `file:///path`, `s3://bucket/prefix` or `gs://bucket/prefix`.

    Credentials of a cloud store come from the machine's own role. Raises StoreUnavailable.
    is_cloud: whether large writes are better made in parts (`part_upload`).
    """

    def __init__(self, uri: str, make_folder: bool = True) -> None:
        """make_folder: a folder that is not there is made; else it counts as empty."""
        import obstore
        from obstore import exceptions, store

        self._obstore: Any = obstore
        self._exceptions: Any = exceptions
        with self._translated(uri):
            parts = urlparse(uri)
            if parts.scheme == "file":
                root = Path(unquote(parts.path))
                if make_folder:
                    root.mkdir(parents=True, exist_ok=True)
                elif not root.is_dir():
                    raise ObjectMissing(uri)
                self._store: Any = store.LocalStore(root)
            else:
                options: Any = {"timeout": _REQUEST_TIMEOUT}
                if _speaks_http(parts.scheme):
                    options["allow_http"] = True
                self._store = store.from_url(uri, client_options=options)
            self.is_cloud = parts.scheme != "file"

    def put_new(self, key: str, content: bytes | Iterator[bytes]) -> None:
        """Create an object from bytes or from a stream of them; raises ObjectExists.

        An exception of the stream passes through and nothing is created.
        """
        with self._translated(key):
            self._obstore.put(
                self._store, key, content, mode="create", chunk_size=STREAM_CHUNK_BYTES
            )

    def with_client(self, key: str, work: Callable[[Any, Any], None]) -> None:
        """Let `work(obstore, its store)` do what is no single request; errors are as elsewhere."""
        with self._translated(key):
            work(self._obstore, self._store)

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissing."""
        with self._translated(key):
            return bytes(self._obstore.get(self._store, key).bytes())

    def stream(self, key: str) -> Iterator[bytes]:
        """Read piece by piece, sizes as the store likes; raises ObjectMissing."""
        with self._translated(key):
            for piece in self._obstore.get(self._store, key).stream():
                yield bytes(piece)

    def list_keys(self, prefix: str) -> list[str]:
        """Keys below a folder such as `fences`, sorted."""
        with self._translated(prefix):
            pages = self._obstore.list(self._store, prefix=prefix)
            return sorted(entry["path"] for page in pages for entry in page)

    def list_objects(self) -> Iterator[ListedObject]:
        """Everything below the root, in no order. Raises ObjectMissing where no bucket is."""
        try:
            with self._translated("list"):
                for page in self._obstore.list(self._store):
                    for entry in page:
                        yield ListedObject(entry["path"], entry["size"], entry["e_tag"] or "")
        except StoreUnavailable as error:
            if "404 Not Found" in str(error):
                raise ObjectMissing("the bucket") from error
            raise

    def stream_on(self, key: str, offset: int, etag: str) -> Iterator[bytes]:
        """Read from a byte on, if the object is still that one.

        Raises ObjectMissing and ObjectChanged.
        """
        options: dict[str, Any] = {"if_match": etag} if etag else {}
        if offset:
            options["range"] = {"offset": offset}
        with self._translated(key):
            for piece in self._obstore.get(self._store, key, options=options).stream():
                yield bytes(piece)

    def put_file(self, key: str, file: IO[bytes], part_bytes: int = 16 << 20) -> None:
        """Write a file's content, in place of what is there; a large one in parts of that size."""
        with self._translated(key):
            self._obstore.put(
                self._store,
                key,
                file,
                mode="overwrite",
                chunk_size=part_bytes,
                max_concurrency=_PARTS_AT_ONCE,
            )

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._exceptions.AlreadyExistsError:
            raise ObjectExists(key) from None
        except (FileNotFoundError, self._exceptions.NotFoundError):
            raise ObjectMissing(key) from None
        except self._exceptions.PreconditionError:
            raise ObjectChanged(key) from None
        except (
            PermissionError,
            self._exceptions.PermissionDeniedError,
            self._exceptions.UnauthenticatedError,
        ) as error:
            raise StoreDenied(f"object store, {key}: {_first_line(error)}") from error
        except self._exceptions.GenericError as error:
            # A list's refusals come without a type of their own.
            message = f"object store, {key}: {_first_line(error)}"
            if any(sign in message for sign in _DENIED_SIGNS):
                raise StoreDenied(message) from error
            raise StoreUnavailable(message) from error
        except (self._exceptions.BaseError, OSError, ValueError) as error:
            raise StoreUnavailable(f"object store, {key}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _speaks_http(scheme: str) -> bool:
    """Whether another server than the cloud's own is named, and by a plain http address."""
    named = next((os.environ[one] for one in _ADDRESSES.get(scheme, ()) if os.environ.get(one)), "")
    return named.startswith("http://")
