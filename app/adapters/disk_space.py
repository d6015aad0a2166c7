"""How much room the disks under a deployment's folders have, and which of them are full."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.domain.units.size_text import size_text

DATABASE: Final = "database"
NEEDED_BYTES: Final = 4 * 2**20
"""A folder whose disk has less counts as full: what is written there would soon be torn."""

NEEDED_BY_DATABASE_BYTES: Final = 32 * 2**20
"""PostgreSQL stops when it cannot make the next 16 MiB of its log."""

_PROBE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class FolderSpace:
    """A folder and the disk under it.

    name: as `object store`. free_bytes: for other users than root. has_files_left: False when the
    file system can hold no further file, however small.
    """

    name: str
    folder: Path
    free_bytes: int
    total_bytes: int
    has_files_left: bool = True

    @property
    def needed_bytes(self) -> int:
        """With less, the disk is full for this folder."""
        return NEEDED_BY_DATABASE_BYTES if self.name == DATABASE else NEEDED_BYTES

    @property
    def is_full(self) -> bool:
        """Whether what uses the folder fails now, or is about to.

        A file system that counts no room at all, as /proc, is not full: it is no disk.
        """
        if not self.total_bytes:
            return False
        return self.free_bytes < self.needed_bytes or not self.has_files_left

    def sentence(self) -> str:
        """Which disk it is, and what it has left."""
        files = "" if self.has_files_left else " and no room for another file"
        free, total = size_text(self.free_bytes), size_text(self.total_bytes)
        return f"{self.name} ({self.folder}): {free} free of {total}{files}"


def measure_folders(folders: Mapping[str, Path]) -> tuple[FolderSpace, ...]:
    """The room for each folder that exists, in the order given.

    One that does not exist yet is measured where it would be made; one that cannot be looked at is
    left out.
    """
    found = (_measure(name, folder) for name, folder in folders.items())
    return tuple(space for space in found if space is not None)


def full_sentence(folders: Mapping[str, Path]) -> str | None:
    """`disk full: …`, with every folder that is; None when all have room."""
    full = [space.sentence() for space in measure_folders(folders) if space.is_full]
    return f"disk full: {'; '.join(full)}" if full else None


class DiskProbe:
    """Whether one of some folders is on a full disk, looked at once a second at most."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._looked_at = -math.inf
        self._is_full = False

    def is_full(self) -> bool:
        """As of a moment ago; cheap enough to ask before every transaction."""
        now = time.monotonic()
        if self._folders and now - self._looked_at >= _PROBE_SECONDS:
            self._looked_at = now
            self._is_full = full_sentence(self._folders) is not None
        return self._is_full


def _measure(name: str, folder: Path) -> FolderSpace | None:
    for place in (folder, *folder.parents):
        try:
            facts = os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        # Some file systems count no files: both figures are 0.
        left = facts.f_files == 0 or facts.f_favail > 0
        size = facts.f_frsize
        return FolderSpace(name, folder, facts.f_bavail * size, facts.f_blocks * size, left)
    return None
