"""The object store as the agent needs it: create-only writes, streamed reads, lists.

The only file that imports obstore, and only when a store is first opened, so that an idle agent
stays small. Not here: what the keys mean (`trainer.protocol.checkpoint_manifest`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import unquote, urlparse

from trainer.agent.checkpoints.storage_credentials import NoCredentials, StorageAccess

T = TypeVar("T")

STREAM_CHUNK_BYTES = 8 << 20
_REQUEST_TIMEOUT = "60s"
_PARTS_AT_ONCE = 4
_ADDRESSES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
}
"""What names a server in place of the cloud's own, to obstore and to `_speaks_http`."""


_DENIED_SIGNS = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "ExpiredToken")
_TOKEN_SIGNS = ("ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "401 Unauthorized")
"""A credential that has run out, or does not count yet: another one may be accepted. Sources: S3
API reference, "Error responses"; Cloud Storage, "HTTP status and error codes"."""
_CLOCK_SIGNS = ("RequestTimeTooSkewed",)
_TOKEN_TRIES = 3


class StoreUnavailable(Exception):
    """The store did not answer as it should; the message names the key. Worth another try."""


class StoreDenied(StoreUnavailable):
    """The machine has no credentials for the store, or they do not allow what was asked."""


class AccessDenied(StoreUnavailable):
    """The store does not accept the credential that was given; others are asked for."""


class KeyExists(Exception):
    """A create-only write met an object that is already there."""


class NoSuchKey(Exception):
    """No object under this key."""


class ObjectChanged(Exception):
    """The object under this key is another one than was asked for."""


@dataclass(frozen=True)
class ListedObject:
    """An object as a store lists it. etag: changes with its content; "" where none is told."""

    key: str
    size_bytes: int
    etag: str


class StorageRoot:
    """One root: `file:///path`, `s3://bucket/prefix` or `gs://bucket/prefix`.

    Credentials of a cloud store are those that were given, else the machine's own role's. Raises
    StoreUnavailable. is_cloud: whether large writes are better made in parts (`part_upload`).
    """

    def __init__(
        self, uri: str, make_folder: bool = True, access: StorageAccess | None = None
    ) -> None:
        """make_folder: a folder that is not there is made; else it counts as empty. access: the
        credentials that the control plane gives.
        """
        import obstore
        from obstore import exceptions, store

        self._obstore: Any = obstore
        self._exceptions: Any = exceptions
        with self._translated(uri):
            parts = urlparse(uri)
            self._service, self._access = parts.scheme, access
            self._folder: Path | None = None
            if parts.scheme == "file":
                self._folder = root = Path(unquote(parts.path))
                if make_folder:
                    root.mkdir(parents=True, exist_ok=True)
                elif not root.is_dir():
                    raise NoSuchKey(uri)
                self._store: Any = store.LocalStore(root)
            else:
                options: Any = {"timeout": _REQUEST_TIMEOUT}
                if _speaks_http(parts.scheme):
                    options["allow_http"] = True
                provider: Any = None if access is None else access.provider_for(parts.scheme)
                given = {} if provider is None else {"credential_provider": provider}
                self._store = store.from_url(uri, client_options=options, **given)
            self.is_cloud = parts.scheme != "file"

    def put_new(self, key: str, content: bytes | Iterator[bytes]) -> None:
        """Create an object from bytes or from a stream of them; raises KeyExists.

        An exception of the stream passes through and nothing is created.
        """

        def put() -> None:
            self._obstore.put(
                self._store, key, content, mode="create", chunk_size=STREAM_CHUNK_BYTES
            )

        # A stream can be read once: who gave it begins anew.
        self._asked(key, put, tries=_TOKEN_TRIES if isinstance(content, bytes) else 1)

    def with_client(self, key: str, work: Callable[[Any, Any], None]) -> None:
        """Let `work(obstore, its store)` do what is no single request; errors are as elsewhere."""
        with self._translated(key):
            work(self._obstore, self._store)

    def get(self, key: str) -> bytes:
        """Read whole; raises NoSuchKey."""
        return self._read(key, lambda: bytes(self._obstore.get(self._store, key).bytes()))

    def stream(self, key: str) -> Iterator[bytes]:
        """Read piece by piece, sizes as the store likes; raises NoSuchKey."""
        opened = self._read(key, lambda: self._obstore.get(self._store, key))
        with self._translated(key):
            for piece in opened.stream():
                yield bytes(piece)

    def list_keys(self, prefix: str) -> list[str]:
        """Keys below a folder such as `fences`, sorted."""

        def look() -> list[str]:
            pages = self._obstore.list(self._store, prefix=prefix)
            return sorted(entry["path"] for page in pages for entry in page)

        return self._asked(prefix, look)

    def list_objects(self, most: int) -> list[ListedObject]:
        """Everything below the root, in no order; some more than `most` where there are more.

        Raises NoSuchKey where no bucket is.
        """

        def look() -> list[ListedObject]:
            found: list[ListedObject] = []
            for page in self._obstore.list(self._store):
                found += [ListedObject(e["path"], e["size"], e["e_tag"] or "") for e in page]
                if len(found) > most:
                    break
            return found

        try:
            return self._asked("list", look)
        except StoreUnavailable as error:
            if "404 Not Found" in str(error):
                raise NoSuchKey("the bucket") from error
            raise

    def leading_out(self, keys: Iterable[str]) -> str | None:
        """The first key of a folder by which a link leads out of it; None, always in a bucket."""
        if self._folder is None:
            return None
        root = self._folder.resolve()
        inside = functools.cache(lambda folder: folder.resolve().is_relative_to(root))
        for key in keys:
            path = self._folder / key
            if not inside(path.parent) or (path.is_symlink() and not inside(path)):
                return key
        return None

    def stream_on(self, key: str, offset: int, etag: str) -> Iterator[bytes]:
        """Read from a byte on, if the object is still that one.

        Raises NoSuchKey and ObjectChanged.
        """
        options: dict[str, Any] = {"if_match": etag} if etag else {}
        if offset:
            options["range"] = {"offset": offset}
        opened = self._read(key, lambda: self._obstore.get(self._store, key, options=options))
        with self._translated(key):
            for piece in opened.stream():
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

    def _asked(self, key: str, ask: Callable[[], T], tries: int = _TOKEN_TRIES) -> T:
        """Ask, again where the credential was refused and another one has come."""
        for further in reversed(range(tries)):
            try:
                with self._translated(key):
                    return ask()
            except AccessDenied:
                if not further:
                    raise
        raise AssertionError("unreachable")

    def _read(self, key: str, ask: Callable[[], T]) -> T:
        """Ask for an object. Who may not list the whole bucket may be refused a missing one."""
        try:
            return self._asked(key, ask)
        except StoreDenied:
            if self._asked(key, lambda: is_listed(self._obstore, self._store, key)):
                raise
            raise NoSuchKey(key) from None

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._exceptions.AlreadyExistsError:
            raise KeyExists(key) from None
        except (FileNotFoundError, self._exceptions.NotFoundError):
            raise NoSuchKey(key) from None
        except self._exceptions.PreconditionError:
            raise ObjectChanged(key) from None
        except (
            PermissionError,
            self._exceptions.PermissionDeniedError,
            self._exceptions.UnauthenticatedError,
            self._exceptions.GenericError,
        ) as error:
            raise self._refusal(key, error) from error
        except (self._exceptions.BaseError, OSError, ValueError) as error:
            raise StoreUnavailable(f"object store, {key}: {_first_line(error)}") from error

    def _refusal(self, key: str, error: Exception) -> StoreUnavailable:
        """What a refusal means. A list's come without a type of their own."""
        message = f"object store, {key}: {_first_line(error)}"
        if NoCredentials.__name__ in message:
            return StoreUnavailable(message)
        if any(sign in message for sign in _CLOCK_SIGNS):
            return StoreUnavailable(f"{message}; the clock of this machine is wrong")
        # An answer to HEAD has no body that would say which refusal it is.
        told = any(sign in message for sign in _TOKEN_SIGNS) or (
            "400 Bad Request" in message and "<Code>" not in message
        )
        if told and self._access is not None and self._access.refuse(self._service):
            return AccessDenied(message)
        denied = not isinstance(error, self._exceptions.GenericError)
        if denied or any(sign in message for sign in _DENIED_SIGNS):
            return StoreDenied(message)
        return StoreUnavailable(message)


def is_there(obstore: Any, store: Any, key: str) -> bool:
    """Whether an object is there; raises obstore's errors."""
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    except obstore.exceptions.PermissionDeniedError:
        if is_listed(obstore, store, key):
            raise
        return False
    return True


def is_listed(obstore: Any, store: Any, key: str) -> bool:
    """Whether a list of its folder shows an object.

    S3 and Google answer 403 for a missing one to who may not list, and do not say whether a right
    to list some folders is enough for 404 ("Permissions" of S3's GetObject and HeadObject).
    """
    pages = obstore.list(store, prefix=key.rpartition("/")[0] or None)
    return any(entry["path"] == key for page in pages for entry in page)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def _speaks_http(scheme: str) -> bool:
    """Whether another server than the cloud's own is named, and by a plain http address."""
    named = next((os.environ[one] for one in _ADDRESSES.get(scheme, ()) if os.environ.get(one)), "")
    return named.startswith("http://")
