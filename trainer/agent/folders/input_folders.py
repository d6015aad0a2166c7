"""Inputs: what a job reads, brought from its buckets to this machine's disk.

The first machine of the job pins the list of objects, with size and etag of each; every other one,
at whatever time, gets these very objects or says that they have changed. What was brought stays for
the machine's next attempt, and a download that was cut goes on where it was. Not here: how the
folders appear to the command (`named_folders`).
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainer.agent.checkpoints.checkpoint_restore import RestoreCancelled
from trainer.agent.checkpoints.storage_root import (
    ListedObject,
    NoSuchKey,
    ObjectChanged,
    StorageRoot,
    StoreDenied,
    StoreUnavailable,
)
from trainer.agent.folders.pinned_paths import agree
from trainer.agent.machine.parallel_transfers import run_in_parallel

OBJECTS_MAX = 200_000
TRIES = 4
RETRY_SECONDS = 1.0
SAY_SECONDS = 10.0
SPARE_BYTES = 1 << 30
"""Left free on the disk: a machine whose disk is full cannot save either."""

_REGION_SIGNS = ("incorrectly configured region", "AuthorizationHeaderMalformed")


class InputsFailed(Exception):
    """An input cannot be brought here; the message is for a person."""


@dataclass(frozen=True)
class _Input:
    """One input: its listed objects, and the folders of what has arrived and what is arriving."""

    path: str
    uri: str
    objects: tuple[ListedObject, ...]
    folder: Path
    parts: Path

    def missing(self) -> list[ListedObject]:
        return [one for one in self.objects if not (self.folder / one.key).is_file()]


class InputFolders:
    """Brings the inputs of one attempt. open_store: where the job keeps its checkpoints. open_at:
    the store of an input, which makes no folder.
    """

    def __init__(
        self,
        cache: Path,
        open_store: Callable[[], StorageRoot],
        is_cancelled: Callable[[], bool],
        say: Callable[[str], None],
        open_at: Callable[[str], StorageRoot] = functools.partial(StorageRoot, make_folder=False),
    ) -> None:
        self._cache = cache
        self._open_store = open_store
        self._open_at = open_at
        self._is_cancelled = is_cancelled
        self._say = say
        self._arrived = 0
        self._lock = threading.Lock()
        self._said_at = 0.0

    def fetch(self, inputs: Mapping[str, str]) -> dict[str, Path]:
        """The folder of each input's files, by its path; they are all there.

        Raises InputsFailed, RestoreCancelled and StoreUnavailable.
        """
        found = [self._look_up(path, uri) for path, uri in inputs.items()]
        self._check_space(found)
        for one in found:
            self._download(one)
        return {one.path: one.folder for one in found}

    def _look_up(self, path: str, uri: str) -> _Input:
        name = hashlib.sha256(uri.encode()).hexdigest()[:16]
        self._check_cancelled()
        pinned = agree(
            self._open_store(), f"inputs/{name}.json.gz", lambda: _pack(_listed(uri, self._open_at))
        )
        root = self._cache / name
        for folder in (root / "files", root / "parts"):
            folder.mkdir(parents=True, exist_ok=True)
        return _Input(path, uri, _unpack(pinned), root / "files", root / "parts")

    def _check_space(self, found: list[_Input]) -> None:
        needed = sum(one.size_bytes for each in found for one in each.missing())
        needed -= sum(part.stat().st_size for each in found for part in each.parts.iterdir())
        free = shutil.disk_usage(self._cache).free if found else 0
        if needed > 0 and needed + SPARE_BYTES > free:
            raise InputsFailed(
                f"the inputs need {_gb(needed)} more, and {_gb(free)} are free at {self._cache}; "
                "ask for a larger machine disk, as in resources: {disk: 500GB}"
            )

    def _download(self, one: _Input) -> None:
        missing = one.missing()
        if not missing:
            return
        total, begun = sum(each.size_bytes for each in missing), time.monotonic()
        self._arrived, self._said_at = 0, begun
        self._say(f"input {one.path}: {_count(missing)}, {_gb(total)} from {one.uri}")
        with _named(one.uri):
            store = self._open_at(one.uri)
            run_in_parallel(
                missing,
                lambda each: self._bring(store, one, each),
                lambda: self._meanwhile(one, total, begun),
            )
        took = max(time.monotonic() - begun, 0.001)
        self._say(f"input {one.path} is here: {_gb(total)} in {took:.1f} s")

    def _meanwhile(self, one: _Input, total: int, begun: float) -> None:
        self._check_cancelled()
        now = time.monotonic()
        if now >= self._said_at + SAY_SECONDS:
            self._said_at = now
            speed = self._arrived / 1e6 / (now - begun)
            self._say(f"input {one.path}: {_gb(self._arrived)} of {_gb(total)}, {speed:.0f} MB/s")

    def _bring(self, store: StorageRoot, one: _Input, wanted: ListedObject) -> None:
        part = one.parts / hashlib.sha256(wanted.key.encode()).hexdigest()
        for tried in range(1, TRIES + 1):
            try:
                self._append(store, wanted, part)
                break
            except (NoSuchKey, ObjectChanged):
                raise InputsFailed(
                    f"{one.uri}/{wanted.key} is not what it was when this job began: it was "
                    "changed or deleted; put it back, or submit the job anew"
                ) from None
            except StoreDenied:
                raise
            except StoreUnavailable:
                if tried == TRIES:
                    raise
                time.sleep(RETRY_SECONDS * 2.0**tried)
        target = one.folder / wanted.key
        target.parent.mkdir(parents=True, exist_ok=True)
        part.chmod(0o444)
        part.rename(target)

    def _append(self, store: StorageRoot, wanted: ListedObject, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0
        if have > wanted.size_bytes:
            part.unlink()
            have = 0
        with part.open("ab") as file:
            if have < wanted.size_bytes:
                for piece in store.stream_on(wanted.key, have, wanted.etag):
                    self._check_cancelled()
                    file.write(piece)
                    have += len(piece)
                    with self._lock:
                        self._arrived += len(piece)
        if have != wanted.size_bytes:
            raise StoreUnavailable(
                f"{wanted.key} has {have} bytes, {wanted.size_bytes} were listed"
            )

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise RestoreCancelled


@contextmanager
def _named(uri: str) -> Iterator[None]:
    """Turns a store's refusals into sentences that name the input's address."""
    try:
        yield
    except StoreDenied as error:
        raise InputsFailed(
            f"{uri} may not be read: allow the role of jobs' data to list and read it ({error})"
        ) from error
    except NoSuchKey as error:
        raise InputsFailed(f"{uri} is not there: no such bucket or folder") from error
    except StoreUnavailable as error:
        if any(sign in str(error) for sign in _REGION_SIGNS):
            raise InputsFailed(
                f"{uri} is in another region than LOWTIDE_CHECKPOINT_REGION, which the machines "
                "are told; keep a job's buckets in one region"
            ) from error
        raise


def _listed(uri: str, open_at: Callable[[str], StorageRoot]) -> list[ListedObject]:
    """Every object of an input, sorted. Raises InputsFailed and StoreUnavailable."""
    with _named(uri):
        store = open_at(uri)
        found = {one.key: one for one in store.list_objects(OBJECTS_MAX)}
    if len(found) > OBJECTS_MAX:
        raise InputsFailed(
            f"{uri} holds more than {OBJECTS_MAX:,} objects; pack them into fewer, larger ones"
        )
    # Consoles make an empty object to show a folder.
    folders = {str(parent) for key in found for parent in PurePosixPath(key).parents}
    kept = [one for key, one in sorted(found.items()) if key not in folders or one.size_bytes]
    stray = store.leading_out(one.key for one in kept)
    if stray is not None:
        raise InputsFailed(
            f"{uri}/{stray} is a link that leads out of that folder; name the folder it leads to"
        )
    unfit = next((one.key for one in kept if not _is_below(one.key, folders)), None)
    if unfit is not None:
        raise InputsFailed(f"{uri}/{unfit} cannot be a file's name here; rename it")
    if not kept:
        raise InputsFailed(f"{uri} holds no objects; name the folder that the files lie in")
    return kept


def _is_below(key: str, folders: set[str]) -> bool:
    parts = key.split("/")
    odd = any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts)
    return not odd and "\0" not in key and key not in folders


def _pack(objects: Iterable[ListedObject]) -> bytes:
    rows = [[one.key, one.size_bytes, one.etag] for one in objects]
    return gzip.compress(json.dumps(rows).encode(), mtime=0)


def _unpack(content: bytes) -> tuple[ListedObject, ...]:
    try:
        return tuple(ListedObject(*row) for row in json.loads(gzip.decompress(content)))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise InputsFailed(f"the job's list of inputs cannot be read: {error}") from error


def _count(files: list[ListedObject]) -> str:
    return "1 file" if len(files) == 1 else f"{len(files)} files"


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 10**7 else f"{size_bytes / 1e6:.3f} MB"
