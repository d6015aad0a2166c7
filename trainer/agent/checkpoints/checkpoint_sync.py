"""Commit a local checkpoint folder to the lineage: files, then lease and fences, then manifest.

Lives here: the order of writes that makes a checkpoint count or not exist at all. Not here: when
to publish (`attempt_ending`), restoring (`checkpoint_restore`), the store (`storage_root`), or how
the other machines' shares come there (`gather_shares`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainer.agent.checkpoints.part_upload import put_shard
from trainer.agent.checkpoints.storage_root import AccessDenied, KeyExists, NoSuchKey, StorageRoot
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    CheckpointRef,
    FenceRecord,
    FileEntry,
    data_key,
    dump_manifest,
    fence_key,
    load_manifest,
    manifest_key,
    parse_fence_key,
    seal,
)
from trainer.protocol.wire import WireError, decode

CHUNK_BYTES = 8 << 20
STEPS_TRIED_MAX = 16


class CommitForbidden(Exception):
    """The lease is over, or the attempt is no longer this machine's: nothing was committed."""


class CutOff(Exception):
    """A later attempt's fence exists: this machine must stop training."""

    def __init__(self, by_fence: int) -> None:
        super().__init__(f"a later attempt has begun (fence {by_fence}): this machine was cut off")
        self.by_fence = by_fence


class Abandoned(Exception):
    """A newer checkpoint is to be published instead."""


class PlaceTaken(Exception):
    """The step's keys hold something else than this checkpoint."""


@dataclass(frozen=True)
class PublishOrder:
    """What to commit. `folder` None: a final manifest without files. leave_out: names in it.

    save: which save of the attempt the folder is a share of; 0: it is the whole.
    """

    fence: int
    step: int
    folder: Path | None = None
    parent: CheckpointRef | None = None
    final: bool = False
    world_size: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    leave_out: frozenset[str] = frozenset()
    save: int = 0


class PeerShards(Protocol):
    """The other machines' shares of a checkpoint; `gather_shares` says what both raise."""

    def ask(self, store: StorageRoot, step: int, save: int, leave_out: bool) -> None:
        """Have the others upload their shares of this save under this step."""

    def collect(self, store: StorageRoot, is_abandoned: Callable[[], bool]) -> list[FileEntry]:
        """The files of the others, once all of them are in the store."""


def publish(
    store: StorageRoot,
    order: PublishOrder,
    may_commit: Callable[[], bool],
    is_abandoned: Callable[[], bool],
    shares: PeerShards | None = None,
) -> CheckpointManifest:
    """Commit a checkpoint and return its manifest; the same order again is the same checkpoint.

    A checkpoint saved twice at one step is committed once. A final one, which must not be lost to
    an earlier save of its step, takes the next free step instead. Raises CommitForbidden, CutOff,
    Abandoned, PlaceTaken (nothing free within 16 steps), StoreUnavailable, and what `shares` does,
    which must be given with an order for a share.
    CutOff also when a later attempt recorded another start while this was written: what is in the
    store then is beside the lineage, and must not be told as saved.
    """
    manifest = _publish(store, order, may_commit, is_abandoned, shares)
    _check_continued(store, manifest.ref)
    return manifest


def _publish(
    store: StorageRoot,
    order: PublishOrder,
    may_commit: Callable[[], bool],
    is_abandoned: Callable[[], bool],
    shares: PeerShards | None,
) -> CheckpointManifest:
    for step in range(order.step, order.step + STEPS_TRIED_MAX):
        try:
            committed = _committed(store, order.fence, step)
            if committed is not None:
                if committed.final or not order.final:
                    return committed
                continue
            entries = _bring_files(store, order, step, is_abandoned, shares)
            return _commit(store, order, step, entries, may_commit, is_abandoned)
        except PlaceTaken:
            continue
    raise PlaceTaken(f"no free key for step {order.step:,} of this attempt")


def _check_continued(store: StorageRoot, ref: CheckpointRef) -> None:
    """The first attempt after this one, if there is any by now, must have begun right here."""
    later = [fence for fence in list_fences(store) if fence > ref.fence]
    if not later:
        return
    try:
        parent = decode(FenceRecord, json.loads(store.get(fence_key(later[0])))).parent
    except (NoSuchKey, WireError, ValueError):
        parent = None
    if parent is None or (parent.fence, parent.step) != (ref.fence, ref.step):
        raise CutOff(later[0])


def newer_fence(store: StorageRoot, fence: int) -> int | None:
    """The highest fence after `fence` that has a record, or None."""
    highest = max(list_fences(store), default=fence)
    return highest if highest > fence else None


def list_fences(store: StorageRoot) -> list[int]:
    """Fences that have a record. What lies deeper is no fence of this lineage."""
    fences = (parse_fence_key(key) for key in store.list_keys("fences"))
    return sorted(fence for fence in fences if fence is not None)


def _committed(store: StorageRoot, fence: int, step: int) -> CheckpointManifest | None:
    try:
        return load_manifest(store.get(manifest_key(fence, step)))
    except NoSuchKey:
        return None
    except WireError as error:
        raise PlaceTaken(str(error)) from error


def _bring_files(
    store: StorageRoot,
    order: PublishOrder,
    step: int,
    is_abandoned: Callable[[], bool],
    shares: PeerShards | None,
) -> list[FileEntry]:
    """All files of the checkpoint, which are in the store when this returns."""
    if order.save and shares is not None:
        shares.ask(store, step, order.save, bool(order.leave_out))
    entries = []
    for path in files_of(order.folder):
        name = path.relative_to(order.folder or path).as_posix()
        if name not in order.leave_out:
            key = data_key(order.fence, step, name)
            entries.append(upload_file(store, key, path, name, is_abandoned))
    if order.save and shares is not None:
        entries += shares.collect(store, is_abandoned)
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names):
        raise PlaceTaken(f"two machines have a file of the same name for step {step:,}")
    return entries


def _commit(
    store: StorageRoot,
    order: PublishOrder,
    step: int,
    entries: list[FileEntry],
    may_commit: Callable[[], bool],
    is_abandoned: Callable[[], bool],
) -> CheckpointManifest:
    manifest = seal(
        CheckpointManifest(
            fence=order.fence,
            step=step,
            parent=order.parent,
            world_size=order.world_size,
            final=order.final,
            files=tuple(entries),
            metrics=dict(order.metrics),
        )
    )
    by_fence = newer_fence(store, order.fence)
    if by_fence is not None:
        raise CutOff(by_fence)
    if is_abandoned():
        raise Abandoned
    if not may_commit():
        raise CommitForbidden("the lease is over: the checkpoint was not committed")
    try:
        store.put_new(manifest_key(order.fence, step), dump_manifest(manifest))
    except KeyExists:
        found = _committed(store, order.fence, step)
        if found is None or found.digest != manifest.digest:
            raise PlaceTaken(manifest_key(order.fence, step)) from None
    return manifest


def files_of(folder: Path | None) -> list[Path]:
    """Regular files below the folder; links are not followed out of it."""
    if folder is None:
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def upload_file(
    store: StorageRoot, key: str, path: Path, name: str, is_abandoned: Callable[[], bool]
) -> FileEntry:
    """Put a file into the store, or find it there as it is.

    Raises Abandoned, PlaceTaken, StoreUnavailable and OSError.
    """
    hashes: list[str] = []
    size = 0

    def pieces() -> Iterator[bytes]:
        nonlocal size
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                if is_abandoned():
                    raise Abandoned
                hashes.append(hashlib.sha256(chunk).hexdigest())
                size += len(chunk)
                yield chunk

    size_bytes = path.stat().st_size
    try:
        try:
            _put(store, key, pieces(), size_bytes)
        except AccessDenied:
            # What is said of it so far was of the first try.
            hashes.clear()
            size = 0
            _put(store, key, pieces(), size_bytes)
    except KeyExists:
        hashes.clear()
        size = 0
        for _ in pieces():
            pass
        if chunk_hashes(store.stream(key), CHUNK_BYTES) != (size, tuple(hashes)):
            raise PlaceTaken(key) from None
    return FileEntry(name, size, CHUNK_BYTES, tuple(hashes))


def _put(store: StorageRoot, key: str, pieces: Iterator[bytes], size_bytes: int) -> None:
    if size_bytes <= CHUNK_BYTES:
        store.put_new(key, b"".join(pieces))
    else:
        put_shard(store, key, pieces, size_bytes)


def chunk_hashes(pieces: Iterator[bytes], chunk_bytes: int) -> tuple[int, tuple[str, ...]]:
    """(size, SHA-256 of each chunk) of a stream whose pieces have any size."""
    size, in_chunk, current, hashes = 0, 0, hashlib.sha256(), []
    for piece in pieces:
        view, first = memoryview(piece), 0
        while first < len(view):
            part = view[first : first + chunk_bytes - in_chunk]
            current.update(part)
            in_chunk += len(part)
            first += len(part)
            if in_chunk == chunk_bytes:
                hashes.append(current.hexdigest())
                in_chunk, current = 0, hashlib.sha256()
        size += len(view)
    if in_chunk:
        hashes.append(current.hexdigest())
    return size, tuple(hashes)
