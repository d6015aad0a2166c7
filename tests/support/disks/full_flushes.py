"""A disk that finds out at a flush that it is full, as file systems that allocate late do.

Not here: disks that are full when something is written (`small_disk`).
"""

from __future__ import annotations

import errno
import os

import pytest


class FullFlush:
    """While it is on, the `at`-th flush of this process fails for want of room; others work."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self._real, self._at = os.fsync, at
        self.count = 0
        patch.setattr(os, "fsync", self._flush)

    @property
    def was_met(self) -> bool:
        """Whether there were so many flushes."""
        return self.count >= self._at

    def _flush(self, descriptor: int) -> None:
        self.count += 1
        if self.count == self._at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real(descriptor)
