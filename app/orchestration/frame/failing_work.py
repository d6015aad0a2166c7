"""Pieces of work that failed, and when each may be tried again: with growing waits, up to a cap.

In the memory of one process and bounded; what is forgotten is tried once more. Not here: the phases
of a controller (`controller_frame`).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from cachetools import FIFOCache

FIRST_WAIT_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 300.0
PASSING_WAIT_SECONDS_MAX: Final = 15.0
"""Of a full disk and of locked rows: the work itself is in order, and goes on once that is over."""
REMEMBERED_MAX: Final = 1_000


@dataclass(frozen=True)
class FailureCount:
    """times: in a row. again_at: not tried before."""

    times: int
    again_at: datetime


class FailingWork:
    """Thread-safe: effects run side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = FIFOCache[tuple[str, Hashable], FailureCount](REMEMBERED_MAX)

    def waits(self, controller: str, work: object, now: datetime) -> bool:
        """Whether this piece failed lately and is to be left alone for now."""
        with self._lock:
            failure = self._failures.get((controller, work_key(work)))
            return failure is not None and now < failure.again_at

    def waiting(self, controller: str, now: datetime) -> int:
        """How many pieces of the controller are left alone now."""
        with self._lock:
            found = self._failures.items()
            return sum(name == controller and now < one.again_at for (name, _), one in found)

    def failed(
        self,
        controller: str,
        work: object,
        now: datetime,
        wait_seconds_max: float = WAIT_SECONDS_MAX,
    ) -> FailureCount:
        """Count a failure; the wait doubles with each in a row, up to `wait_seconds_max`."""
        key = (controller, work_key(work))
        with self._lock:
            before = self._failures.pop(key, None)
            times = 1 if before is None else before.times + 1
            wait = min(wait_seconds_max, FIRST_WAIT_SECONDS * 2.0 ** min(times - 1, 16))
            failure = self._failures[key] = FailureCount(times, now + timedelta(seconds=wait))
            return failure

    def succeeded(self, controller: str, work: object) -> None:
        """Forget its failures."""
        if self._failures:
            with self._lock:
                self._failures.pop((controller, work_key(work)), None)


def work_key(work: object) -> Hashable:
    """What stays the same when a piece of work is picked again: its ids, else its words.

    Leases and instants differ each time. A piece without ids is known by its plain text fields.
    """
    if not is_dataclass(work) or isinstance(work, type):
        return repr(work)
    values = [(one.name, getattr(work, one.name)) for one in fields(work)]
    ids = tuple(value for _, value in values if isinstance(value, UUID))
    if ids:
        return ids
    return tuple(
        value for name, value in values if isinstance(value, str) and not name.startswith("lease")
    )
