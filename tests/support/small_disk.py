"""Small disks for tests: a tmpfs over a folder, and the filling and emptying of it.

Needs root, as the mounting does. Not here: what is expected of those who write to it.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILLER = ".filler"
_PIECE = bytes(64 << 10)


class SmallDisk:
    """One tmpfs. `fill` takes all that is free, `empty` gives it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with open(self.folder / FILLER, "ab", buffering=0) as file:
            for size in (len(_PIECE), 4096, 1):
                try:
                    while file.write(_PIECE[:size]):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def empty(self) -> None:
        (self.folder / FILLER).unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[SmallDisk]:
    """A disk of so many KiB at `folder`, which is made; unmounted whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=0755", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, timeout=60)
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process that a failing test left behind may still be in there.
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=60)
