"""When unknown machines mean that rows are missing, and what giving one back saves.

Pure rules. Not here: the lists themselves, or what is done with a machine (`app.orchestration`).
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

UNKNOWN_MACHINES_MAX: Final = 3
UNKNOWN_SHARE_MAX: Final = 0.2
"""More unknown machines than both in one list are no leak: a leak comes one at a time."""

FENCES_SKIPPED: Final = 1_000
"""Attempts that lost rows may have numbered: far more than a job makes between two backups."""

VERSIONS_SKIPPED: Final = 1_000_000
"""Changes of one job that lost rows may have counted: far more than between two backups. Of no use
where the clock is ahead of a job's count (`version_floor`)."""

VERSIONS_MAX: Final = 2_000_000_000
"""As many changes as a job's column holds, less room to count on."""

_VERSIONS_SINCE: Final = datetime(2020, 1, 1, tzinfo=UTC)

UNLISTED_SECONDS_MAX: Final = 900
"""After a gap of the control plane, claims wait so long for lists of all regions, and no longer."""

DESTROY_SECONDS_MAX: Final = 3_600
"""An order to end everything holds for so long; what is left then needs a person."""


class DeploymentEventKind(StrEnum):
    """Kinds of entries in the deployment's own history. Stored and shown; never rename one."""

    ROWS_MISSING = "rows_missing"
    SWEEP_CONFIRMED = "sweep_confirmed"
    MACHINE_KEPT = "machine_kept"
    ORPHAN_REAPED = "orphan_reaped"
    REMAINS_REMOVED = "remains_removed"
    DESTROY_ORDERED = "destroy_ordered"
    DESTROYED = "destroyed"
    DESTROY_EXPIRED = "destroy_expired"


def version_floor(now: datetime) -> int:
    """From where a job's changes are counted on after a gap: the seconds since 2020.

    No job changes once a second for long, so that lost rows cannot have counted further, however
    many gaps they have seen; and seconds fit into the column until 2083.
    """
    seconds = int((now - _VERSIONS_SINCE).total_seconds())
    return min(max(seconds, 0), VERSIONS_MAX)


def why_rows_are_missing(*, listed: int, unknown: int, of_unknown_launches: int) -> str | None:
    """A sentence when a region's list shows that this database has lost rows, else None.

    A launch is stored before its cloud is called, so a machine whose tag names a launch that is
    not stored is proof by itself. Without such a tag the number of unknown machines decides.
    """
    if of_unknown_launches:
        machines = "1 machine was" if of_unknown_launches == 1 else "machines were"
        count = "" if of_unknown_launches == 1 else f"{of_unknown_launches} "
        return f"{count}{machines} started by launches that this database does not know"
    if unknown > UNKNOWN_MACHINES_MAX and unknown > UNKNOWN_SHARE_MAX * listed:
        return f"{unknown} of {listed} machines in one list are unknown to this database"
    return None


def saved_microusd_per_day(price_microusd_per_hour: int | None) -> int | None:
    """What a machine that nobody needs would have gone on to cost each day."""
    return None if price_microusd_per_hour is None else 24 * price_microusd_per_hour
