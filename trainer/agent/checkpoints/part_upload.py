"""Large objects in parts: what one request cannot carry, or memory should not hold.

Lives here: one upload through obstore, and which objects go that way. Not here: the agent's store
(`storage_root`), whose own writes are create-only and therefore single requests, held whole in
memory and at most 5 GiB on S3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainer.agent.checkpoints.storage_root import KeyExists, StorageRoot, is_there

PART_BYTES_MIN = 16 << 20
PARTS_MAX = 9_000
"""S3 takes 10,000 parts of an object (S3 user guide, "multipart upload limits")."""

CONCURRENT_PARTS = 4
LARGE_BYTES = 64 << 20
"""Beyond this an object goes to a cloud in parts; one request would hold it whole in memory."""


def part_bytes(size_bytes: int) -> int:
    """How large the parts of an object are: as few as fit, and at least 16 MiB."""
    return max(PART_BYTES_MIN, -(-size_bytes // PARTS_MAX))


def put_shard(store: StorageRoot, key: str, pieces: Iterator[bytes], size_bytes: int) -> None:
    """Write a file of a checkpoint under a key that belongs to this writer alone.

    In parts where it is large and the store is a cloud's; create-only is then the manifest that
    names it, not the file. Raises KeyExists, StoreUnavailable, and what the stream raises.
    """
    if not store.is_cloud or size_bytes <= LARGE_BYTES:
        store.put_new(key, pieces)
        return
    store.with_client(
        key, lambda obstore, opened: put_in_parts(obstore, opened, key, pieces, size_bytes)
    )


def put_in_parts(
    obstore: Any, store: Any, key: str, pieces: Iterator[bytes], size_bytes: int
) -> None:
    """Write a stream of about `size_bytes`; the object is there when all of it is, or not at all.

    Raises KeyExists when the key was taken before; of two writers at the same moment the later
    one wins, so the key must belong to one writer. What the stream or obstore raises passes on.
    """
    if is_there(obstore, store, key):
        raise KeyExists(key)
    obstore.put(
        store,
        key,
        pieces,
        use_multipart=True,
        chunk_size=part_bytes(size_bytes),
        max_concurrency=CONCURRENT_PARTS,
    )
