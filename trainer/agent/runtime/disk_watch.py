"""Looks at this machine's disks every second, clears a full one, and tells what it found.

A thread of its own. Not here: what counts as full and what may go (`make_room`), what a full disk
means for the attempt (`disk_rules`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.agent.machine.boot_clock import boot_seconds
from trainer.agent.machine.make_room import (
    FreeSpace,
    Removable,
    free_space,
    look_at,
    make_room,
    told_as,
)
from trainer.agent.rules.observations import DiskSeen, Observation

LOOK_SECONDS = 1.0
CLEAR_SECONDS = 10.0
"""A disk is called full no more when it has had room for so long: it may fill again at once."""


class DiskWatch:
    """`look` once, or `run` in a thread. Nothing is told while no disk is or was full."""

    def __init__(
        self,
        folders: Callable[[], Sequence[Path]],
        removable: Callable[[], Removable | None],
        observe: Callable[[Observation], None],
        say: Callable[[str], None],
        keep_state: Callable[[], None],
        own_log: int | None = None,
    ) -> None:
        """folders: what to look at. removable: what may go now, None without an attempt. say: tells
        a person what was removed. keep_state: writes what found no room before. own_log: descriptor
        of the agent's own log.
        """
        self._folders = folders
        self._removable = removable
        self._observe = observe
        self._say = say
        self._keep_state = keep_state
        self._own_log = own_log
        self._full_at: float | None = None
        self._lacking: Path | None = None

    def run(self, stopping: threading.Event) -> None:
        """Until it is stopped."""
        while not stopping.wait(LOOK_SECONDS):
            self.look()

    def lacked_room(self, folder: Path) -> None:
        """A save did not fit there: one of the older ones goes, however much is free."""
        self._lacking = folder

    def look(self) -> None:
        """Find the first file system that is full, make room on it, and tell what is left."""
        self._keep_state()
        lacking, self._lacking = self._lacking, None
        if lacking is not None:
            self._remove_one(lacking)
        full = next((space for space in look_at(self._folders()) if space.is_full), None)
        now = boot_seconds()
        if full is not None:
            self._full_at = now
            left = self._clear(full)
            self._observe(DiskSeen(told_as(left)))
        elif self._full_at is not None and now >= self._full_at + CLEAR_SECONDS:
            self._full_at = None
            self._observe(DiskSeen(None))

    def _remove_one(self, folder: Path) -> None:
        removable = self._removable()
        try:
            device = folder.stat().st_dev
        except OSError:
            return
        sentences = iter(()) if removable is None else make_room(device, removable, None)
        for sentence in sentences:
            self._say(f"a save found no room in {folder}: {sentence}")
            return

    def _clear(self, space: FreeSpace) -> FreeSpace:
        removable = self._removable()
        if removable is None:
            return space
        for sentence in make_room(space.device, removable, self._own_log):
            self._say(f"the disk of {space.folder} is full: {sentence}")
            try:
                space = free_space(space.folder)
            except OSError:
                break
            if not space.is_full:
                break
        return space
