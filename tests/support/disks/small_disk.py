"""Small disks for tests: a tmpfs over a folder, and the filling and emptying of it.

Needs root, as mounting does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.finished_commands import run_command

_FILL = ".fill"
_PAGE_BYTES = 4096


class SmallDisk:
    """One tmpfs; `folder` is its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def free_bytes(self) -> int:
        """What is left."""
        facts = os.statvfs(self.folder)
        return facts.f_bavail * facts.f_frsize

    def fill(self, leave_bytes: int = 0) -> None:
        """Write until so much is left (in pages of 4 KiB); again where others have freed some."""
        with (self.folder / _FILL).open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while (room := self.free_bytes - leave_bytes) > 0:
                file.write(bytes(min(1 << 20, -(-room // _PAGE_BYTES) * _PAGE_BYTES)))

    def empty(self) -> None:
        """Remove what `fill` wrote."""
        (self.folder / _FILL).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[SmallDisk]:
    """A disk of so many KiB at `folder`, which is made; unmounted whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_kib}k,mode=0755", "tmpfs", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process that a failing test left behind may still have files open there.
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    done = run_command(command, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
