"""Saving beside training: a copy while training stands still, the rest in a thread of its own.

One checkpoint is on its way at a time. Each rank writes its part of the bytes to its machine's
disk; the first rank of a machine then waits for the parts of the others there and commits what is
the machine's share, which is the whole where one machine saves alone. The ranks of a machine meet
in the folder only, never in a collective, so training's own messages are not disturbed. The thread
spends its time in calls that do not hold the GIL (numpy's loops, SHA-256, write, fsync).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint import manifest as manifests
from trainer.training.checkpoint.content_hash import CHUNK_BYTES, NAME, ContentHash
from trainer.training.checkpoint.files import replace_bytes, write_bytes, write_image
from trainer.training.checkpoint.folder import CheckpointFolder
from trainer.training.checkpoint.layout import Layout, State, lay_out, state_of
from trainer.training.checkpoint.snapshot import Snapshot

PEER_SECONDS = 600.0
_LOOK_SECONDS = 0.005
# How the thread gives way to training; under a notice nothing gives way.
_NICE = 10


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
    ``error`` says why not.

    ``stall_seconds``: training stood still; ``seconds``: from the asking to being durable.
    """

    step: int
    final: bool
    stall_seconds: float
    seconds: float
    path: Path | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Order:
    header: dict[str, Any]
    document: Mapping[str, Any]
    layout: Layout
    snapshot: Snapshot
    temporary: Path
    number: int
    best: bool
    asked_at: float
    stall_seconds: float = 0.0


class CheckpointEngine:
    """Of one rank. ``save``, ``prepare`` and ``finish`` are called by training's thread alone."""

    def __init__(self, folder: CheckpointFolder, writer: Writer = Writer()) -> None:
        self.folder = folder
        self.writer = writer
        self._held: tuple[Layout, Snapshot] | None = None
        self._thread: threading.Thread | None = None
        self._results: deque[Saved] = deque()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._is_saving = False
        self._count = 0

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is still on its way; memory that is made ready is none."""
        return self._is_saving and not self._idle.is_set()

    def prepare(
        self, trees: Mapping[str, Any], own: Mapping[str, Tensor], uncut: Collection[str] = ()
    ) -> None:
        """Allocates the memory for such a state in the background, so that no save waits for it."""
        self._join()
        state = state_of(trees, own, uncut)

        def allocate() -> None:
            # What fails here fails again in `save`, where somebody can be told.
            with contextlib.suppress(Exception):
                self._memory_for(state)

        self._start(allocate)

    def save(
        self,
        header: dict[str, Any],
        trees: Mapping[str, Any],
        own: Mapping[str, Tensor],
        *,
        uncut: Collection[str] = (),
        best: bool = False,
        hurried: bool = False,
    ) -> None:
        """Takes the state as it is now and returns; ``hurried`` returns when it is durable.

        header: the manifest without what describes files; ``step`` and ``final`` at least.
        trees: name -> nested plain values and tensors, alike on all ranks. own: this rank's own
        tensors, written beside the last tree. uncut: tensors that only the first rank is to write.
        A save that is still on its way is waited for.
        Raises ``TypeError`` for what a checkpoint cannot hold; what goes wrong later is a result.
        """
        self._join()
        asked_at = time.monotonic()
        state = state_of(trees, own, uncut)
        layout, snapshot = self._memory_for(state)
        snapshot.take(layout.sources(state))
        self._count += 1
        order = _Order(
            header={"format": manifests.FORMAT, **header, "torch": torch.__version__},
            document=state.document,
            layout=layout,
            snapshot=snapshot,
            temporary=self.folder.temporary(header["step"], self.writer.fence, self._count),
            number=self._count,
            best=best,
            asked_at=asked_at,
            stall_seconds=time.monotonic() - asked_at,
        )
        if hurried:
            self._carry_out(order, direct=False)
        else:
            self._is_saving = True
            self._start(lambda: self._carry_out(order, direct=True))

    def finish(self, seconds: float | None = None) -> None:
        """Waits until nothing is on its way, or for so many seconds."""
        if self._idle.wait(seconds):
            self._is_saving = False

    def take_results(self) -> list[Saved]:
        """How the saves went that ended since the last call."""
        results = []
        while self._results:
            results.append(self._results.popleft())
        return results

    def _memory_for(self, state: State) -> tuple[Layout, Snapshot]:
        """The places of such a state, and the memory; made anew only when it has changed."""
        if self._held is None or not self._held[0].fits(state):
            layout = lay_out(state, self.writer.part, self.writer.parts)
            if self._held is not None:
                self._held[1].close()
            self._held = layout, Snapshot(layout.images)
        return self._held

    def _start(self, work: Callable[[], None]) -> None:
        """Has the thread do it. Its start is waited for only once: it may be slow to get a core."""
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="checkpoint", daemon=True)
            self._thread.start()
        self._orders.put(work)

    def _serve(self) -> None:
        _give_way()
        while True:
            work = self._orders.get()
            try:
                work()
            finally:
                self._idle.set()

    def _join(self) -> None:
        self._idle.wait()
        self._is_saving = False

    def _carry_out(self, order: _Order, direct: bool) -> None:
        """Writes and, on a machine's first rank, commits; leaves a result behind in any case."""
        path, problem = None, None
        try:
            path = self._write(order, direct)
        except Exception as error:  # in a thread: training's thread reads the result
            problem = _sentence(error)
            self._clear_away(order, problem)
        header = order.header
        self._results.append(
            Saved(
                step=header["step"],
                final=bool(header["final"]),
                stall_seconds=order.stall_seconds,
                seconds=time.monotonic() - order.asked_at,
                path=path,
                error=problem,
            )
        )

    def _write(self, order: _Order, direct: bool) -> Path | None:
        if self.writer.commits:
            self.folder.sweep(besides=order.temporary)
        order.temporary.mkdir(parents=True, exist_ok=True)
        key = _key(order)
        hashing = ContentHash(key)
        order.snapshot.wait()
        written = []
        layout = order.layout
        files = zip(layout.names, layout.images, order.snapshot.contents(), strict=True)
        for name, image, content in files:
            chunks = hashing.chunks(content[: image.size])
            write_image(order.temporary / name, content, image.size, direct)
            written.append({"path": name, "size": image.size, "chunks": chunks})
        if not self.writer.commits:
            done = order.temporary / _part_name(self.writer.part)
            replace_bytes(done, json.dumps(written).encode())
            return None
        first = self.writer.part
        for part in range(first + 1, first + self.writer.parts_here):
            written += _await_part(order.temporary, part)
        return self._commit(order, hashing, key, written)

    def _commit(
        self, order: _Order, hashing: ContentHash, key: bytes, files: list[dict[str, Any]]
    ) -> Path:
        """The tree and what describes the whole is the first machine's to write."""
        writer, header, name = self.writer, order.header, manifests.MANIFEST
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
        return self.folder.commit(order.temporary, order.header["step"], order.best)

    def _clear_away(self, order: _Order, problem: str) -> None:
        """A full disk must get its room back; the others must not wait for this part."""
        if self.writer.commits:
            shutil.rmtree(order.temporary, ignore_errors=True)
            return
        failed = order.temporary / f"{_part_name(self.writer.part)}.failed"
        # Whatever cannot be done here: then the first one gives up by itself, after PEER_SECONDS.
        for name in order.layout.names:
            with contextlib.suppress(OSError):
                (order.temporary / name).unlink()
        with contextlib.suppress(OSError):
            failed.write_text(problem)


def _await_part(folder: Path, part: int) -> list[dict[str, Any]]:
    """The files of another rank's part. Raises ``OSError`` when it failed or never comes."""
    done = folder / _part_name(part)
    failed = folder / f"{_part_name(part)}.failed"
    deadline = time.monotonic() + PEER_SECONDS
    while not done.exists():
        if failed.exists():
            raise OSError(failed.read_text() or f"rank {part} could not write its part")
        if time.monotonic() > deadline:
            raise OSError(f"rank {part} did not write its part within {PEER_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    files: list[dict[str, Any]] = json.loads(done.read_bytes())
    done.unlink()
    return files


def _part_name(part: int) -> str:
    return f"part-{part:05d}.json"


def _key(order: _Order) -> bytes:
    """16 bytes that all ranks know, and no other checkpoint of this job has."""
    return hashlib.sha256(order.temporary.name.encode()).digest()[:16]


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _give_way() -> None:
    """On Linux a thread has a priority of its own. Source: setpriority(2), "C library/kernel"."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
    except (AttributeError, OSError):
        pass
