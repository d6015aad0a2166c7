"""Whether a file system of this machine is full, and what may be removed from it.

Lives here: the looking, and the removing in its order: checkpoints on this machine that a newer one
has replaced, oldest first; then what was already read of logs. Never the newest checkpoint, nor the
newest one that is committed. Not here: when (`disk_watch`), what a full disk means (`disk_rules`).
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.protocol.agent_report import DiskFull

FULL_BYTES_MAX = 16 << 20
FULL_SHARE = 100
"""Full: less than 16 MiB is free, or than a hundredth of a smaller disk."""
PROGRESS_KEPT_BYTES = 1 << 20
LOG_BYTES_MAX = 1 << 20
_PUNCH_HOLE_KEEP_SIZE = 3
"""FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of linux/falloc.h."""
_COMPLETE = re.compile(r"^step-(\d{1,12})$")
_PAGE = 4096


@dataclass(frozen=True)
class FreeSpace:
    """Of the file system that holds `folder`. device: its number, which tells two apart."""

    folder: Path
    device: int
    free_bytes: int
    is_full: bool


@dataclass(frozen=True)
class Removable:
    """What an attempt has on this machine that its disk may be cleared of.

    committed_step: of the newest checkpoint in the store, None before the first. progress_read: so
    many bytes of the progress file have been read.
    """

    checkpoints: Path
    committed_step: int | None
    progress_file: Path
    progress_read: int


def look_at(folders: Iterable[Path]) -> list[FreeSpace]:
    """Every file system that one of the folders lies on, once; a folder that is not there: none."""
    seen: dict[int, FreeSpace] = {}
    for folder in folders:
        with suppress(OSError):
            device = folder.stat().st_dev
            if device not in seen:
                seen[device] = free_space(folder)
    return list(seen.values())


def free_space(folder: Path) -> FreeSpace:
    """How much a trainer may still write there. Raises OSError."""
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    no_files = found.f_files > 0 and found.f_favail == 0
    little = size > 0 and free < min(FULL_BYTES_MAX, size // FULL_SHARE)
    return FreeSpace(folder, folder.stat().st_dev, free, little or no_files)


def told_as(space: FreeSpace) -> DiskFull:
    """As a report carries it."""
    return DiskFull(str(space.folder), space.free_bytes)


def make_room(device: int, removable: Removable, own_log: int | None) -> Iterator[str]:
    """Remove one thing after the other, each told in a sentence once it is gone.

    Who takes the sentences stops when there is room. own_log: descriptor of the agent's own log.
    """
    for folder in replaced_checkpoints(removable.checkpoints, removable.committed_step):
        if _is_on(folder, device) and _remove(folder):
            step = int(folder.name.removeprefix("step-"))
            copy = f"this machine's copy of the checkpoint of step {step:,}"
            yield f"removed {copy}: newer ones exist"
    if _is_on(removable.progress_file, device):
        count = removable.progress_read - PROGRESS_KEPT_BYTES
        if punch_hole(removable.progress_file, count):
            yield "removed lines of progress that have been read"
    if own_log is not None and _shorten_log(own_log, device):
        yield "emptied the log of the agent itself"


def replaced_checkpoints(folder: Path, committed_step: int | None) -> list[Path]:
    """Complete checkpoints that may go, oldest first: neither the newest nor the newest committed
    one.
    """
    try:
        names = [entry.name for entry in os.scandir(folder) if _COMPLETE.match(entry.name)]
    except OSError:
        return []
    steps = sorted((int(name.removeprefix("step-")), name) for name in names)
    return [folder / name for step, name in steps[:-1] if step != committed_step]


def punch_hole(path: Path, count: int) -> bool:
    """Give the first `count` bytes of a file back to its disk, in whole pages; its length stays.

    False where nothing was given back. Its writer notices nothing of it.
    """
    count -= count % _PAGE
    if count <= 0:
        return False
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        before = os.fstat(descriptor).st_blocks
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        offset = ctypes.c_longlong
        fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset(0), offset(count))
        return os.fstat(descriptor).st_blocks < before
    except (OSError, AttributeError):
        return False
    finally:
        os.close(descriptor)


def _is_on(path: Path, device: int) -> bool:
    try:
        return path.stat().st_dev == device
    except OSError:
        return False


def _remove(folder: Path) -> bool:
    """Renamed first, so that nobody takes what is left half-way for a whole checkpoint."""
    doomed = folder.with_name(f".removed-{folder.name}")
    try:
        folder.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def _shorten_log(descriptor: int, device: int) -> bool:
    """Empty a log that is appended to; one that is small, or no file, stays."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_dev != device:
            return False
        if found.st_size <= LOG_BYTES_MAX:
            return False
        os.ftruncate(descriptor, 0)
    except OSError:
        return False
    return True
