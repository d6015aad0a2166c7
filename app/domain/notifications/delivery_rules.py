"""When a delivery is tried again, how many a rule sends in an hour, and what became of one.

Not here: sending it (`app.orchestration.notifications.send_notifications`).
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

HOURLY_MAX: Final = 60
"""Of one rule, or of one job's `notify`, to one channel; what comes above is told in a digest."""
WINDOW: Final = timedelta(hours=1)
KEPT_FOR: Final = timedelta(days=30)
"""How long what became of a delivery can be read."""
REST: Final = timedelta(seconds=30)
"""After a failed call a channel is left alone: others have their turn before it."""

_WAITS: Final = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=24),
    timedelta(minutes=90),
    timedelta(hours=4),
    timedelta(hours=7),
    timedelta(hours=11),
)
"""24 hours in all, between eight tries."""


class DeliveryState(StrEnum):
    """Where a delivery stands. Values are stored; never reuse or rename one."""

    NEW = "new"
    """Nobody has looked yet whether its rule has sent too many."""
    WAITING = "waiting"
    """Its next try has a time."""
    HELD = "held"
    """It is told by a digest, within an hour."""
    DIGESTED = "digested"
    DELIVERED = "delivered"
    FAILED = "failed"
    """Eight tries have failed, or its channel was removed."""


CHANNEL_REMOVED: Final = "Its channel was removed."
"""What is told of a delivery that nobody is sent any more."""
UNDONE: Final = frozenset({DeliveryState.NEW, DeliveryState.WAITING, DeliveryState.HELD})


def wait_after(tries: int) -> timedelta | None:
    """How long to wait after so many failed tries, at least one; None: it was the last."""
    return _WAITS[tries - 1] if tries <= len(_WAITS) else None
