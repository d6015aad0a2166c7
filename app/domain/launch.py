"""What became of a launch: one call to a cloud for one or more instances.

Not here: the instances it asked for (`instance`) and the launch's stored fields (`entities`).
"""

from __future__ import annotations

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
