"""The machine's clock behind the clock port.

Not here: the instants written into rows, which are the database's (`UnitOfWork.now`).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Implements `app.ports.clock.Clock`."""

    def now(self) -> datetime:
        """The instant, aware, UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait; at once when `seconds` is not above zero."""
        time.sleep(max(0.0, seconds))


def steady_seconds() -> float:
    """Seconds since some fixed past, whatever happens to the wall clock: for alarms in memory."""
    return time.monotonic()
