"""A disk of some megabytes that a test can fill: a tmpfs of its own, unmounted in any case."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILL = ".fill"
_PIECE_BYTES = 4096


class SmallDisk:
    """`folder` is its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def free_bytes(self) -> int:
        """What is left."""
        facts = os.statvfs(self.folder)
        return facts.f_bavail * facts.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Write until so much is left (in pages of 4 KiB); again where others have freed some."""
        with open(self.folder / _FILL, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while (room := self.free_bytes - leave_bytes) > 0:
                file.write(bytes(min(1 << 20, -(-room // _PIECE_BYTES) * _PIECE_BYTES)))

    def empty(self) -> None:
        """Remove what `fill` wrote."""
        (self.folder / _FILL).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: float) -> Iterator[SmallDisk]:
    """Mount one on `folder`, which is made. Needs root, as the whole suite of real disks does."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={int(megabytes * 1024)}k,mode=0711"
    _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        # Also while a process that a failed test has left still has files open there.
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
