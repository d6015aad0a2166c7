"""The worker's due timer: runs a controller at the instant for which its rows say work waits.

It carries no truth: every instant is read from the database again after each run and at each ring
of beat, and a clock that is lost with its process is built anew from the rows. It makes short waits
exact (a poll in a second) without rings every second, and lets a worker go on while Redis is away.
Not here: the threads that run controllers (`controller_threads`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.orchestration.frame.controller_frame import AnyController
from app.storage.unit_of_work import UnitOfWorkFactory

log = logging.getLogger(__name__)

LOOK_GAP_SECONDS: Final = 0.25
"""However much happens, the rows are looked at no more often than this."""

IDLE_PAUSE_SECONDS: Final = 1.0
"""A controller that was due and found nothing to do (a row was locked) is not asked sooner."""

NOTED_EVERY_SECONDS: Final = 30.0
"""That a controller was looked at is stored at most so often, for whoever watches the workers."""

LOOK_SECONDS_MAX: Final = 10.0
"""Without a ring of beat for so long, the worker looks by itself."""


class DueTimer:
    """One thread that waits for the earliest instant, and rings.

    notify: never waits. read_seconds: a clock that only goes forward.
    """

    def __init__(
        self,
        begin: UnitOfWorkFactory,
        controllers: Mapping[str, AnyController],
        notify: Callable[[Iterable[str]], None],
        read_seconds: Callable[[], float],
    ) -> None:
        self._begin = begin
        self._controllers = controllers
        self._notify = notify
        self._read_seconds = read_seconds
        self._changed = threading.Condition()
        self._due_at: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._noted_at: dict[str, float] = {}
        self._to_look_at: dict[str, None] = dict.fromkeys(controllers)
        self._next_look = self._last_look = read_seconds()
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="due-timer", daemon=True)

    def start(self) -> None:
        """Begin with a look at all controllers."""
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Ring no more."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds)

    def look_at(self, names: Iterable[str]) -> None:
        """Read soon when these controllers are due; unknown names are left out."""
        with self._changed:
            self._to_look_at.update(dict.fromkeys(n for n in names if n in self._controllers))
            self._changed.notify()

    def after_run(self, name: str, worked: int | None) -> None:
        """A run has ended: work begets work anywhere, none or a failure asks for a pause."""
        if worked:
            self.look_at(self._controllers)
            return
        with self._changed:
            self._not_before[name] = self._read_seconds() + IDLE_PAUSE_SECONDS
        self.look_at([name])

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(self._seconds_to_wait())
                if self._closing:
                    return
                due, names = self._take_due()
            self._notify(due)
            if names:
                self._look(names)

    def _seconds_to_wait(self) -> float:
        look = self._next_look if self._to_look_at else self._last_look + LOOK_SECONDS_MAX
        return max(0.0, min([look, *self._due_at.values()]) - self._read_seconds())

    def _take_due(self) -> tuple[list[str], list[str]]:
        """Controllers whose instant has come, and those to look at now; the lock is held."""
        now = self._read_seconds()
        due = [name for name, at in self._due_at.items() if at <= now]
        for name in due:
            del self._due_at[name]
        if now >= self._last_look + LOOK_SECONDS_MAX:
            self._to_look_at = dict.fromkeys(self._controllers)
        names: list[str] = []
        if now >= self._next_look:
            names, self._to_look_at = list(self._to_look_at), {}
        if names:
            self._last_look, self._next_look = now, now + LOOK_GAP_SECONDS
        return due, names

    def _look(self, names: list[str]) -> None:
        try:
            waits = self._read_waits(names)
        except Exception as error:
            # Whatever is wrong with asking, running them at their periods must go on.
            log.error("could not read what is due: %s", _in_a_line(error))
            waits = dict.fromkeys(names, IDLE_PAUSE_SECONDS)
        else:
            self._note(names)
        with self._changed:
            now = self._read_seconds()
            for name, seconds in waits.items():
                if seconds is None:
                    self._due_at.pop(name, None)
                else:
                    self._due_at[name] = max(now + seconds, self._not_before.get(name, now))

    def _note(self, names: list[str]) -> None:
        """Store that these were looked at: a worker that is gone, or cannot write, does not."""
        now = self._read_seconds()
        old = [
            name
            for name in sorted(names)
            if now - self._noted_at.get(name, -NOTED_EVERY_SECONDS) >= NOTED_EVERY_SECONDS
        ]
        if not old:
            return
        self._noted_at.update(dict.fromkeys(old, now))
        try:
            with self._begin() as uow:
                uow.operations.note_looks(old, uow.now)
        except Exception as error:
            # On a full disk, say, where reading goes on.
            log.warning("could not store a look: %s", _in_a_line(error))

    def _read_waits(self, names: list[str]) -> dict[str, float | None]:
        """Seconds until each controller is due, by its rows; None where nothing waits."""
        waits: dict[str, float | None] = {}
        with self._begin() as uow:
            for name in names:
                due = self._controllers[name].next_due(uow)
                waits[name] = None if due is None else max(0.0, (due - uow.now).total_seconds())
        return waits


def _in_a_line(error: Exception) -> str:
    first_line = str(error).split("\n", 1)[0]
    return f"{type(error).__name__}: {first_line}"
