"""Object stores in memory: create-only, strongly consistent, and out of order when told so.

One world-wide set of objects, seen by agents below their job's root (`JobStore`, which takes the
place of the agent's own store class) and by the control plane whole (`MemoryStore`). Not here:
what the keys mean (`trainer.protocol.checkpoint_manifest`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from app.ports import object_store as port
from trainer.agent.checkpoints import storage_root as agent


class MemoryStore:
    """Implements `app.ports.object_store.ObjectStore` over everything."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []
        self.unavailable = False
        self.full = False
        self.upload_seconds = (1.0, 20.0)  # least and most, of a checkpoint with files
        self.watch_deleted: Callable[[str], None] | None = None
        self.watch: Callable[[str, bytes], None] | None = None

    def put_new(self, key: str, content: bytes) -> None:
        """Create; raises ObjectExists, ObjectStoreError while away, ObjectStoreFull."""
        self._check(key)
        if key in self._objects:
            raise port.ObjectExists(key)
        if self.full:
            raise port.ObjectStoreFull(f"the simulated store is full: {key}")
        self._objects[key] = content
        insort(self._keys, key)
        if self.watch is not None:
            self.watch(key, content)

    def get(self, key: str) -> bytes:
        """Read whole; raises ObjectMissing."""
        self._check(key)
        if key not in self._objects:
            raise port.ObjectMissing(key)
        return self._objects[key]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a part; raises ObjectMissing."""
        return self.get(key)[start : start + length]

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Keys below a prefix, sorted."""
        self._check(prefix)
        first = bisect_left(self._keys, prefix)
        last = bisect_left(self._keys, prefix + "\U0010ffff")
        return iter(self._keys[first:last])

    def delete(self, key: str) -> None:
        """Remove; nothing happens when the key is absent."""
        self._check(key)
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            if self.watch_deleted is not None:
                self.watch_deleted(key)

    def at(self, uri: str) -> FolderView:
        """The store at the address of one job's checkpoints."""
        return FolderView(self, uri.rsplit("/", 1)[-1])

    def _check(self, key: str) -> None:
        if self.unavailable:
            raise port.ObjectStoreError(f"the simulated store is unavailable: {key}")


class FolderView:
    """Implements `app.ports.object_store.ObjectStore` over the keys below one root."""

    def __init__(self, store: MemoryStore, root: str) -> None:
        self._memory = store
        self._root = f"{root.strip('/')}/"

    def put_new(self, key: str, content: bytes) -> None:
        """Create below the root."""
        self._memory.put_new(self._root + key, content)

    def get(self, key: str) -> bytes:
        """Read whole."""
        return self._memory.get(self._root + key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a part."""
        return self._memory.get_range(self._root + key, start, length)

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Keys below a prefix, sorted, relative to the root."""
        found = self._memory.list_keys(self._root + prefix)
        return (key.removeprefix(self._root) for key in found)

    def delete(self, key: str) -> None:
        """Remove below the root."""
        self._memory.delete(self._root + key)


class JobStore(agent.StorageRoot):
    """What one job's agents see: the keys below their root, with the agent's own errors."""

    def __init__(self, store: MemoryStore, root: str) -> None:
        self._memory = store
        self._root = f"{root.strip('/')}/"

    @property
    def upload_seconds(self) -> tuple[float, float]:
        """The least and the most that the upload of a checkpoint with files takes."""
        return self._memory.upload_seconds

    def put_new(self, key: str, content: bytes | Iterator[bytes]) -> None:
        """Create from bytes or a stream of them."""
        whole = content if isinstance(content, bytes) else b"".join(content)
        try:
            self._memory.put_new(self._root + key, whole)
        except port.ObjectExists:
            raise agent.KeyExists(key) from None
        except port.ObjectStoreError as error:
            raise agent.StoreUnavailable(str(error)) from error

    def get(self, key: str) -> bytes:
        """Read whole."""
        try:
            return self._memory.get(self._root + key)
        except port.ObjectMissing:
            raise agent.NoSuchKey(key) from None
        except port.ObjectStoreError as error:
            raise agent.StoreUnavailable(str(error)) from error

    def stream(self, key: str) -> Iterator[bytes]:
        """Read in one piece."""
        yield self.get(key)

    def list_keys(self, prefix: str) -> list[str]:
        """Keys below a folder, sorted, relative to the root."""
        try:
            found = self._memory.list_keys(f"{self._root}{prefix}/")
        except port.ObjectStoreError as error:
            raise agent.StoreUnavailable(str(error)) from error
        return [key.removeprefix(self._root) for key in found]
