"""Choose the checkpoint an attempt starts from, bring it here verified, and record the choice.

Lives here: walking the lineage, downloading with hashes, the fence record. Not here: the order of
the lineage (`trainer.protocol.checkpoint_manifest.lineage_order`) or publishing
(`checkpoint_sync`).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainer.agent.checkpoints.checkpoint_sync import CutOff, newer_fence
from trainer.agent.checkpoints.storage_root import KeyExists, NoSuchKey, StorageRoot
from trainer.protocol.checkpoint_manifest import (
    CheckpointManifest,
    CheckpointRef,
    FenceRecord,
    FileEntry,
    data_key,
    fence_key,
    lineage_order,
    load_manifest,
    manifest_key,
    parse_manifest_key,
    stays_inside,
)
from trainer.protocol.wire import WireError, decode, encode

RECORD_WAIT_SECONDS = 120.0
CANDIDATES_MAX = 64
CHOICES_MAX = 3


class CheckpointCorrupt(Exception):
    """What the store holds is not what was written; the message names the key."""


class RestoreFailed(Exception):
    """No start can be made; the message is for a person."""


class RestoreCancelled(Exception):
    """The attempt is over before it began."""


@dataclass(frozen=True)
class ResumePoint:
    """The chosen parent and the folder its files are in; None and None for a fresh start.

    size_bytes: of all files of the parent, whichever machine needs them.
    """

    parent: CheckpointRef | None = None
    folder: Path | None = None
    final: bool = False
    size_bytes: int | None = None


class Restorer:
    """Restores one attempt on one machine. `target` receives the files."""

    def __init__(
        self,
        store: StorageRoot,
        fence: int,
        instance_id: str,
        target: Path,
        is_cancelled: Callable[[], bool],
        log: Callable[[str], None],
        record_wait_seconds: float = RECORD_WAIT_SECONDS,
    ) -> None:
        self._store = store
        self._fence = fence
        self._instance_id = instance_id
        self._target = target
        self._is_cancelled = is_cancelled
        self._log = log
        self._record_wait_seconds = record_wait_seconds
        self._looked_at: set[tuple[int, int]] = set()
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of checkpoints read from the store so far, what was passed over included."""
        return self._bytes_read

    def restore(self, node_rank: int) -> ResumePoint:
        """Bring the parent here. Rank 0 chooses and records it; the others wait for the record.

        The others download what they would choose meanwhile, which is nearly always the same.
        Raises RestoreFailed, RestoreCancelled, CheckpointCorrupt, CutOff and StoreUnavailable.
        """
        by_fence = newer_fence(self._store, self._fence)
        if by_fence is not None:
            raise CutOff(by_fence)
        record = self._read_record(self._fence)
        if record is not None:
            return self._fetch_recorded(record)
        chosen = self._newest_valid()
        if node_rank == 0:
            chosen = self._newest_by_now(chosen)
            record = self._write_record(chosen)
        else:
            record = self._await_record()
        return chosen if record.parent == chosen.parent else self._fetch_recorded(record)

    # --- the choice ---

    def _newest_valid(self) -> ResumePoint:
        for fence, step in self._candidates():
            self._looked_at.add((fence, step))
            try:
                return self._fetch(fence, step, None)
            except CheckpointCorrupt as error:
                self._log(f"checkpoint {step:,} (fence {fence}) is passed over: {error}")
        return ResumePoint()

    def _newest_by_now(self, chosen: ResumePoint) -> ResumePoint:
        """The last attempt's rank 0 may have committed its last checkpoint during the download.

        Once this attempt's start is recorded, nothing that is committed later counts any more.
        """
        for _ in range(CHOICES_MAX):
            newest = next(iter(self._candidates()), None)
            if newest is None or newest in self._looked_at:
                break
            chosen = self._newest_valid()
        return chosen

    def _candidates(self) -> list[tuple[int, int]]:
        """(fence, step) along the lineage as it stands in the store, newest first."""
        keys = (parse_manifest_key(key) for key in self._store.list_keys("manifests"))
        found = [key for key in keys if key is not None]
        parents = _RecordedParents(self._read_record)
        return list(islice(lineage_order(found, parents, self._fence), CANDIDATES_MAX))

    def _fetch_recorded(self, record: FenceRecord) -> ResumePoint:
        parent = record.parent
        return self._fetch(parent.fence, parent.step, parent.digest) if parent else ResumePoint()

    def _read_record(self, fence: int) -> FenceRecord | None:
        try:
            return decode(FenceRecord, json.loads(self._store.get(fence_key(fence))))
        except NoSuchKey:
            return None
        except (WireError, ValueError) as error:
            raise RestoreFailed(f"{fence_key(fence)} cannot be read: {error}") from error

    def _write_record(self, chosen: ResumePoint) -> FenceRecord:
        record = FenceRecord(self._fence, chosen.parent, self._instance_id)
        try:
            content = json.dumps(encode(record), sort_keys=True).encode()
            self._store.put_new(fence_key(self._fence), content)
        except KeyExists:
            found = self._read_record(self._fence)
            if found is None:
                raise RestoreFailed(f"{fence_key(self._fence)} exists but is missing") from None
            return found
        return record

    def _await_record(self) -> FenceRecord:
        deadline = time.monotonic() + self._record_wait_seconds
        while time.monotonic() < deadline:
            record = self._read_record(self._fence)
            if record is not None:
                return record
            self._check_cancelled()
            time.sleep(0.5)
        raise RestoreFailed(
            "rank 0 did not record the start of this attempt"
            f" within {self._record_wait_seconds:.0f} s"
        )

    # --- the download ---

    def _fetch(self, fence: int, step: int, digest: str | None) -> ResumePoint:
        key = manifest_key(fence, step)
        try:
            manifest = load_manifest(self._store.get(key))
        except NoSuchKey:
            raise CheckpointCorrupt(f"{key} is missing") from None
        except WireError as error:
            raise CheckpointCorrupt(f"{key}: {error}") from error
        if (manifest.fence, manifest.step) != (fence, step):
            raise CheckpointCorrupt(f"{key} is the manifest of another checkpoint")
        if digest is not None and manifest.digest != digest:
            raise CheckpointCorrupt(f"{key} is not the one that was recorded")
        folder = self._download(manifest)
        return ResumePoint(manifest.ref, folder, manifest.final, manifest.size_bytes)

    def _download(self, manifest: CheckpointManifest) -> Path | None:
        if not manifest.files:
            return None
        folder = self._target / f"step-{manifest.step:012d}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            for entry in manifest.files:
                self._download_file(manifest, entry, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def _download_file(self, manifest: CheckpointManifest, entry: FileEntry, folder: Path) -> None:
        key = data_key(manifest.fence, manifest.step, entry.name)
        if not stays_inside(entry.name) or entry.chunk_bytes < 1:
            raise CheckpointCorrupt(f"{key}: not a name inside the checkpoint")
        path = folder / entry.name
        path.parent.mkdir(parents=True, exist_ok=True)
        size, number = 0, 0
        try:
            with path.open("wb") as file:
                for chunk in _rechunked(self._counted(key), entry.chunk_bytes):
                    self._check_cancelled()
                    if hashlib.sha256(chunk).hexdigest() != _at(entry.chunk_sha256, number):
                        raise CheckpointCorrupt(f"{key} is damaged in chunk {number}")
                    file.write(chunk)
                    size, number = size + len(chunk), number + 1
        except NoSuchKey:
            raise CheckpointCorrupt(f"{key} is missing") from None
        if size != entry.size_bytes or number != len(entry.chunk_sha256):
            raise CheckpointCorrupt(f"{key} has {size} bytes, not {entry.size_bytes}")

    def _counted(self, key: str) -> Iterator[bytes]:
        for piece in self._store.stream(key):
            self._bytes_read += len(piece)
            yield piece

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise RestoreCancelled


class _RecordedParents(Mapping[int, CheckpointRef | None]):
    """Parents by fence, read when the lineage asks: most attempts need none or one."""

    def __init__(self, read: Callable[[int], FenceRecord | None]) -> None:
        self._read = read

    def __getitem__(self, fence: int) -> CheckpointRef | None:
        record = self._read(fence)
        return record.parent if record else None

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _at(hashes: tuple[str, ...], number: int) -> str | None:
    return hashes[number] if number < len(hashes) else None


def _rechunked(pieces: Iterator[bytes], chunk_bytes: int) -> Iterator[bytes]:
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= chunk_bytes:
            yield bytes(held[:chunk_bytes])
            del held[:chunk_bytes]
    if held:
        yield bytes(held)
