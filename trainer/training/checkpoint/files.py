"""Writing files so that they are there after a power cut, and folders so that they are there whole.

Large images go past the page cache (O_DIRECT) where the file system can: that costs the processor
a tenth. Where it cannot (tmpfs, some network disks), or when the bytes are about to be read again,
they go through it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE_BYTES = 4096
WRITE_BYTES = 8 << 20
# What file systems answer that know no O_DIRECT, at open or at the first write.
_NOT_DIRECT = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)


def write_pieces(path: Path, content: Any, size: int, direct: bool) -> Iterator[int]:
    """Writes the first ``size`` bytes of ``content`` to the new file ``path``; durable at the end.

    ``content`` is a buffer that begins at a page and is padded to whole pages. Yields the bytes of
    each part as it is written. Raises ``OSError``.
    """
    view = memoryview(content)
    if direct and hasattr(os, "O_DIRECT"):
        try:
            yield from _write(path, view, size, os.O_DIRECT)
            return
        except OSError as error:
            if error.errno not in _NOT_DIRECT:
                raise
    yield from _write(path, view[:size], size, 0)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a small new file durably. Raises ``OSError``."""
    for _ in _write(path, memoryview(content), len(content), 0):
        pass


def replace_bytes(path: Path, content: bytes) -> None:
    """Writes a small file durably and lets it appear at once, in place of an older one."""
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    write_bytes(temporary, content)
    temporary.replace(path)


def sync_folder(folder: Path) -> None:
    """Makes the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, view: memoryview, size: int, flags: int) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | flags, 0o644)
    try:
        written = 0
        while written < len(view):
            # A short write of a whole number of pages may be gone on with; others end in EINVAL.
            count = os.write(descriptor, view[written : written + WRITE_BYTES])
            written += count
            yield count
        if size != len(view):
            os.ftruncate(descriptor, size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
