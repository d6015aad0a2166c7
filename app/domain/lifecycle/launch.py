"""What became of a launch: one call to a cloud for one or more instances.

Also here: how the cloud is asked next. Not here: the instances it asked for (`instance`) and the
launch's stored fields (`entities`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


class LaunchOutcome(StrEnum):
    """`partial`: fewer than asked were accepted. `unknown`: the reply was lost; ask by token."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    PARTIAL = "partial"
    REFUSED = "refused"
    UNKNOWN = "unknown"


OPEN_LAUNCH_OUTCOMES: Final = frozenset({LaunchOutcome.PENDING, LaunchOutcome.UNKNOWN})
"""Outcomes after which the cloud still has to be asked."""


def launch_outcome(count: int, accepted: int) -> LaunchOutcome:
    """The outcome of a call for `count` machines that ended with `accepted` of them."""
    if not 0 <= accepted <= count:
        raise ValueError(f"a launch of {count} cannot have {accepted} accepted machines")
    if accepted == 0:
        return LaunchOutcome.REFUSED
    return LaunchOutcome.ACCEPTED if accepted == count else LaunchOutcome.PARTIAL


LAUNCH_CALLS_MAX: Final = 8
"""Calls under one token; then what exists under it decides."""


class LaunchStep(StrEnum):
    """How a launch goes on: a `call` may start machines, `poll` and `find` only ask."""

    NOTHING = "nothing"
    CALL = "call"
    POLL = "poll"
    FIND = "find"


def launch_step(
    *,
    wanted: bool,
    may_exist: bool,
    operation: str | None,
    called_at: datetime | None,
    calls_made: int,
    poll_for: timedelta,
    now: datetime,
) -> LaunchStep:
    """What to do about a launch that has no outcome yet.

    may_exist: a call was made whose answer never came, or is not complete. Machines that nobody
    wants any more are never asked for again: a repeated call might start them.
    """
    if operation is not None and (called_at is None or now < called_at + poll_for):
        return LaunchStep.POLL
    if may_exist and (operation is not None or not wanted or calls_made >= LAUNCH_CALLS_MAX):
        return LaunchStep.FIND
    return LaunchStep.CALL if wanted else LaunchStep.NOTHING
