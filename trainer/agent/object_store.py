"""The object store as the agent needs it: create-only writes, streamed reads, lists.

The only file that imports obstore, and only when a store is first opened, so that an idle agent
stays small. Not here: what the keys mean (`trainer.protocol.checkpoint_manifest`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

STREAM_CHUNK_BYTES = 8 << 20
_REQUEST_TIMEOUT = "60s"


class StoreUnavailable(Exception):
    """The store did not answer as it should; the message names the key. Worth another try."""


class ObjectExists(Exception):
    """A create-only write met an object that is already there."""


class ObjectMissing(Exception):
    """No object under this key."""


class ObjectStore:
    """One checkpoint root: `file:///path`, `s3://bucket/prefix` or `gs://bucket/prefix`.

    Credentials of a cloud store come from the machine's own role. Raises StoreUnavailable.
    """

    def __init__(self, uri: str) -> None:
        import obstore
        from obstore import exceptions, store

        self._obstore: Any = obstore
        self._exceptions: Any = exceptions
        with self._translated(uri):
            parts = urlparse(uri)
            if parts.scheme == "file":
                root = Path(unquote(parts.path))
                root.mkdir(parents=True, exist_ok=True)
                self._store: Any = store.LocalStore(root)
            else:
                self._store = store.from_url(uri, client_options={"timeout": _REQUEST_TIMEOUT})

    def put_new(self, key: str, content: bytes | Iterator[bytes]) -> None:
        """Create an object from bytes or from a stream of them; raises ObjectExists.

        An exception of the stream passes through and nothing is created.
        """
        with self._translated(key):
            self._obstore.put(
                self._store, key, content, mode="create", chunk_size=STREAM_CHUNK_BYTES
            )

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

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._exceptions.AlreadyExistsError:
            raise ObjectExists(key) from None
        except (FileNotFoundError, self._exceptions.NotFoundError):
            raise ObjectMissing(key) from None
        except (self._exceptions.BaseError, OSError, ValueError) as error:
            first_line = str(error).split("\n", 1)[0]
            raise StoreUnavailable(f"object store, {key}: {first_line}") from error
