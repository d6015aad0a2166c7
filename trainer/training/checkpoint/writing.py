"""One checkpoint on its way from a snapshot to the disk, in small pieces.

Whoever drives it may stop between two pieces: another thread then goes on with it, or nobody does
and it is dropped. The ranks of a machine meet in the folder only: each writes its part there, the
first one waits for the others' and commits.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.training.checkpoint import manifest as manifests
from trainer.training.checkpoint.content_hash import CHUNK_BYTES, NAME, ContentHash
from trainer.training.checkpoint.files import replace_bytes, write_bytes, write_pieces
from trainer.training.checkpoint.folder import CheckpointFolder
from trainer.training.checkpoint.layout import Layout
from trainer.training.checkpoint.snapshot import Snapshot

PEER_SECONDS = 600.0
_FAILED, _NO_ROOM = ".failed", ".no-room"
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Writer:
    """This rank's part of the bytes: writer ``part`` of ``parts``, alike many on each machine.

    ``machines``: how many save, each its share; the first writer of each commits there.
    """

    part: int = 0
    parts: int = 1
    fence: int = 0
    machines: int = 1

    @property
    def parts_here(self) -> int:
        """How many write on this machine."""
        return self.parts // self.machines

    @property
    def machine(self) -> int:
        """The number of this machine, from 0."""
        return self.part // self.parts_here

    @property
    def commits(self) -> bool:
        """Whether it is the first one on its machine."""
        return self.part % self.parts_here == 0


@dataclass(frozen=True)
class Saved:
    """How one save went. ``path`` is set on a machine's first rank when it is committed there;
    ``error`` says why not, ``disk_full`` that its disk had no room for it.

    ``stall_seconds``: training stood still; ``seconds``: from the asking to being durable.
    """

    step: int
    final: bool
    stall_seconds: float
    seconds: float
    path: Path | None = None
    error: str | None = None
    disk_full: bool = False


@dataclass(frozen=True)
class WriteJob:
    """What is to be written, and where. ``hurried``: training waits for it, and the bytes are read
    again at once.
    """

    header: dict[str, Any]
    document: Mapping[str, Any]
    layout: Layout
    snapshot: Snapshot
    temporary: Path
    number: int
    best: bool
    hurried: bool
    asked_at: float
    stall_seconds: float = 0.0

    @property
    def bytes(self) -> int:
        """Size of this rank's files."""
        return sum(image.size for image in self.layout.images)


class Writing:
    """One save of one rank. Driven by one thread at a time."""

    def __init__(self, order: WriteJob, folder: CheckpointFolder, writer: Writer) -> None:
        self.order = order
        self.written_bytes = 0
        self.result: Saved | None = None
        self._folder = folder
        self._writer = writer
        self._path: Path | None = None
        self._pieces = self._write()

    def advance(self) -> bool:
        """Does the next piece; False when there is none: then ``result`` says how it went."""
        if self.result is not None:
            return False
        try:
            next(self._pieces)
            return True
        except StopIteration:
            self._end()
        except Exception as error:  # in a thread: training's thread reads the result
            problem, no_room = _sentence(error), _is_no_room(error)
            self._clear_away(problem, no_room)
            self._end(problem, no_room)
        return False

    def drop(self) -> None:
        """Gives it up: nothing of it stays. Without a result if it had none yet."""
        if self.result is None:
            self._pieces.close()
            self._clear_away(None)

    def _end(self, problem: str | None = None, no_room: bool = False) -> None:
        header = self.order.header
        self.result = Saved(
            step=header["step"],
            final=bool(header["final"]),
            stall_seconds=self.order.stall_seconds,
            seconds=time.monotonic() - self.order.asked_at,
            path=self._path,
            error=problem,
            disk_full=no_room,
        )

    def _write(self) -> Generator[None]:
        order, writer = self.order, self._writer
        if writer.commits:
            self._folder.sweep(besides=order.temporary)
        order.temporary.mkdir(parents=True, exist_ok=True)
        key = _key(order)
        hashing = ContentHash(key)
        order.snapshot.wait()
        written: list[dict[str, Any]] = []
        layout = order.layout
        files = zip(layout.names, layout.images, order.snapshot.contents(), strict=True)
        for name, image, content in files:
            chunks: list[str] = []
            yield from self._write_file(name, content, image.size, hashing, chunks)
            written.append({"path": name, "size": image.size, "chunks": chunks})
        if not writer.commits:
            done = order.temporary / _part_name(writer.part)
            replace_bytes(done, json.dumps(written).encode())
            return
        for part in range(writer.part + 1, writer.part + writer.parts_here):
            yield from _await_part(order.temporary, part, written)
        self._path = self._commit(hashing, key, written)

    def _write_file(
        self, name: str, content: Any, size: int, hashing: ContentHash, chunks: list[str]
    ) -> Iterator[None]:
        """One file, and its hashes into ``chunks``: beside the writing where training waits, else
        before it, on the same core.
        """
        path = self.order.temporary / name
        if self.order.hurried:
            with ThreadPoolExecutor(1, "checkpoint-hash") as beside:
                hashes = beside.submit(hashing.chunks, content[:size])
                for count in write_pieces(path, content, size, direct=False):
                    self.written_bytes += count
                chunks += hashes.result()
            yield
            return
        for first in range(0, size, CHUNK_BYTES):
            chunks.append(hashing.chunk(content[first : min(size, first + CHUNK_BYTES)]))
            yield
        for count in write_pieces(path, content, size, direct=True):
            self.written_bytes += count
            yield

    def _commit(self, hashing: ContentHash, key: bytes, files: list[dict[str, Any]]) -> Path:
        """The tree and what describes the whole is the first machine's to write."""
        order, writer = self.order, self._writer
        header, name = order.header, manifests.MANIFEST
        if writer.machines > 1:
            share = manifests.Share(writer.machine, writer.machines, order.number)
            header, name = manifests.header_of(share, header), share.manifest_name
        if writer.machine == 0:
            tree = json.dumps(order.document).encode()
            write_bytes(order.temporary / manifests.TREE, tree)
            entry = {"path": manifests.TREE, "size": len(tree), "chunks": hashing.chunks(tree)}
            files = [entry, *files]
        manifest = manifests.seal(
            {
                **header,
                **manifests.optional_files(order.header, files),
                "hash": {"name": NAME, "key": key.hex(), "chunk_bytes": CHUNK_BYTES},
                "files": files,
            }
        )
        write_bytes(order.temporary / name, json.dumps(manifest, indent=1).encode())
        return self._folder.commit(order.temporary, order.header["step"], order.best)

    def _clear_away(self, problem: str | None, no_room: bool = False) -> None:
        """A full disk must get its room back; the others must not wait for this part.

        problem: None where they all give it up.
        """
        order = self.order
        if self._writer.commits:
            shutil.rmtree(order.temporary, ignore_errors=True)
            return
        word = _NO_ROOM if no_room else _FAILED
        failed = order.temporary / f"{_part_name(self._writer.part)}{word}"
        # Whatever cannot be done here: then the first one gives up by itself, after PEER_SECONDS.
        for name in order.layout.names:
            with contextlib.suppress(OSError):
                (order.temporary / name).unlink()
        if problem is not None:
            with contextlib.suppress(OSError):
                failed.write_text(problem)


def _await_part(folder: Path, part: int, files: list[dict[str, Any]]) -> Iterator[None]:
    """Adds the files of another rank's part. Raises ``OSError`` when it failed or never comes."""
    done = folder / _part_name(part)
    failed = folder / f"{_part_name(part)}{_FAILED}"
    no_room = folder / f"{_part_name(part)}{_NO_ROOM}"
    deadline = time.monotonic() + PEER_SECONDS
    while not done.exists():
        if no_room.exists():
            raise OSError(errno.ENOSPC, no_room.read_text() or os.strerror(errno.ENOSPC))
        if failed.exists():
            raise OSError(failed.read_text() or f"rank {part} could not write its part")
        if time.monotonic() > deadline:
            raise OSError(f"rank {part} did not write its part within {PEER_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
        yield
    files += json.loads(done.read_bytes())
    done.unlink()


def _part_name(part: int) -> str:
    return f"part-{part:05d}.json"


def _key(order: WriteJob) -> bytes:
    """16 bytes that all ranks know, and no other checkpoint of this job has."""
    return hashlib.sha256(order.temporary.name.encode()).digest()[:16]


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _is_no_room(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
