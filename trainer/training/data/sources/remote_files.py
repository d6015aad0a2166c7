"""Files in buckets, read with obstore, which is optional: only data at s3:// and gs:// needs it.

Credentials: the environment's, else the machine's role. The program that lists and copies whole
buckets is ``bucket``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.training.data.loading.data_parts import BadSampleError
from trainer.training.training_errors import ConfigError, DataUnavailableError

REQUEST_TIMEOUT = "60s"


class RemoteFiles:
    """Files below one address. Each process has its own, opened at the first read."""

    def __init__(self, address: str) -> None:
        try:
            import obstore
            from obstore import exceptions, store
        except ImportError as error:
            raise ConfigError(
                f"data: {address} needs obstore; add `pip install obstore` to setup"
            ) from error
        self.address = address
        self._obstore: Any = obstore
        self._exceptions: Any = exceptions
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("GOOGLE_BASE_URL") or ""
        options: Any = {"timeout": REQUEST_TIMEOUT}
        if endpoint.startswith("http://"):
            options["allow_http"] = True
        with self._translated(""):
            self._store: Any = store.from_url(address, client_options=options)

    @staticmethod
    def of(address: str) -> RemoteFiles:
        """This process's bucket at ``address``."""
        return _opened(address, os.getpid())

    def files(self) -> Iterator[tuple[str, int]]:
        """(path, size) of every file that is not hidden, as the bucket orders them."""
        with self._translated(""):
            for page in self._obstore.list(self._store):
                for entry in page:
                    path = str(entry["path"])
                    if not any(name.startswith(".") for name in path.split("/")):
                        yield path, int(entry["size"])

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """As ``Source.read``."""
        with self._translated(path):
            if size is None and start == 0:
                return bytes(self._obstore.get(self._store, path).bytes())
            if size == 0:
                return b""
            if size is None:
                size = int(self._obstore.head(self._store, path)["size"]) - start
            return bytes(self._obstore.get_range(self._store, path, start=start, length=size))

    def pieces(self, path: str) -> Iterator[bytes]:
        """A whole file, piece by piece."""
        with self._translated(path):
            for piece in self._obstore.get(self._store, path).stream():
                yield bytes(piece)

    def copy_to(self, path: str, target: Path) -> None:
        """Copies a whole file to ``target``."""
        with target.open("wb") as file:
            for piece in self.pieces(path):
                file.write(piece)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        name = f"{self.address}/{path}" if path else self.address
        try:
            yield
        except (FileNotFoundError, self._exceptions.NotFoundError):
            raise BadSampleError(f"{name} is not there") from None
        except (self._exceptions.BaseError, OSError, ValueError) as error:
            first = str(error).split("\n", 1)[0]
            raise DataUnavailableError(f"data: {name} cannot be read: {first}") from error


@functools.lru_cache(maxsize=8)
def _opened(address: str, _process: int) -> RemoteFiles:
    return RemoteFiles(address)
