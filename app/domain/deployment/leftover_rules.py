"""When what a cloud keeps beside machines may be removed.

Pure rules. Not here: what there is (`app.ports.cloud_leftovers`) or who asks
(`app.orchestration.deployment.clear_leftovers`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

LEFTOVERS_LOOK_SECONDS: Final = 600
"""How often a region is asked for them. They cost little or nothing, and asking is rationed."""

LEFTOVERS_GRACE_SECONDS: Final = 3_600
"""Idle for so long in our own looks, a thing is needed by no launch: those last a quarter of it."""


def is_over(idle_since_at: datetime | None, now: datetime) -> bool:
    """Whether a thing that was first seen idle then, and at each look since, may go."""
    if idle_since_at is None:
        return False
    return now - idle_since_at >= timedelta(seconds=LEFTOVERS_GRACE_SECONDS)
