"""The object store port: create-only writes, reads, lists. Keys are relative to a root URI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class ObjectStoreError(Exception):
    """The store did not answer as it should; the message names the store and the key."""


class ObjectExists(ObjectStoreError):
    """A create-only write met an object that is already there."""


class ObjectMissing(ObjectStoreError):
    """No object under this key."""


class ObjectStoreDenied(ObjectStoreError):
    """Credentials are missing or not allowed to do this; the message says what to allow."""


class ObjectStoreFull(ObjectStoreError):
    """The disk of the store has no room; nothing is left of the object."""


class StoreMissing(ObjectStoreError):
    """The bucket itself does not exist."""


class ObjectStore(Protocol):
    """Strong read-after-write and conditional create are required of every implementation."""

    def put_new(self, key: str, content: bytes) -> None:
        """Create; raises ObjectExists when the key is taken, ObjectStoreError otherwise."""
        ...

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissing."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start` (fewer at the end); raises ObjectMissing."""
        ...

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Keys below a prefix, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Remove; nothing happens when the key is absent."""
        ...
