"""What is known about one rented machine that matters for its bill.

Lives here: when it ran and who says so, what it was assigned to, its fixed-rate extras.
Not here: the instance's states (`instance`), and turning facts into money (`billing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import combinations
from uuid import UUID

from app.domain.lifecycle.instance import EndedBy
from app.domain.market.offer import Market


class TimeSource(StrEnum):
    """Who says when a machine's billed time began or ended, best first within each cloud."""

    LAUNCH_TIME = "launch_time"  # EC2 DescribeInstances LaunchTime
    LAST_START = "last_start"  # GCE lastStartTimestamp
    CREATION = "creation"  # GCE creationTimestamp
    INSERT_OPERATION = "insert_operation"  # GCE, end of the operation that made the machine
    PROVIDER_RECORD = "provider_record"  # the local provider's own record
    STATE_CHANGE_EVENT = "state_change_event"  # EC2 event bus
    STATE_TRANSITION_REASON = "state_transition_reason"  # EC2, whole seconds
    OPERATION_END = "operation_end"  # GCE delete or preempted operation
    NOTICE = "notice"  # EC2 interruption notice time
    FIRST_SEEN = "first_seen"  # our own look, at a machine that no row of ours knew
    FIRST_SEEN_GONE = "first_seen_gone"  # our own look


ESTIMATED_SOURCES = frozenset({TimeSource.NOTICE, TimeSource.FIRST_SEEN_GONE})
"""The cloud gave no time of its own for it; this is the nearest one we know."""

_BEST_STARTS: tuple[frozenset[TimeSource], ...] = (
    frozenset({TimeSource.LAUNCH_TIME, TimeSource.LAST_START, TimeSource.PROVIDER_RECORD}),
    frozenset({TimeSource.CREATION, TimeSource.INSERT_OPERATION}),
    frozenset({TimeSource.FIRST_SEEN}),
)
"""Words on a machine's start, the most exact first; no other one is ever corrected."""

_BEST_ENDS: tuple[frozenset[TimeSource], ...] = (
    frozenset(
        {TimeSource.STATE_CHANGE_EVENT, TimeSource.OPERATION_END, TimeSource.PROVIDER_RECORD}
    ),
    frozenset({TimeSource.STATE_TRANSITION_REASON}),
    frozenset({TimeSource.NOTICE}),
)
"""Words on a machine's end, the most exact first; whatever is not here comes after them."""


def is_better_start(source: str, known_source: str | None) -> bool:
    """Whether a time of a start from `source` corrects one from `known_source`.

    A start that was set on purpose, such as the end of an earlier row of the same machine, is
    none that a cloud's word corrects.
    """
    return any(
        known_source in worse and source in better
        for better, worse in combinations(_BEST_STARTS, 2)
    )


def is_better_end(source: str, known_source: str | None) -> bool:
    """Whether a time of an end from `source` corrects one from `known_source`."""
    return _end_rank(source) < _end_rank(known_source)


def _end_rank(source: str | None) -> int:
    found = (rank for rank, sources in enumerate(_BEST_ENDS) if source in sources)
    return next(found, len(_BEST_ENDS))


@dataclass(frozen=True, slots=True)
class AssignmentSpan:
    """Who the machine works for over `[from_at, to_at)`; `to_at` None while it lasts."""

    assignment_id: UUID
    job_id: UUID | None
    attempt_id: UUID | None
    from_at: datetime
    to_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DiskRate:
    """The disk that lives and dies with the machine.

    microusd_per_month: what it costs beside its size, for its speed.
    """

    size_gb: int
    microusd_per_gb_month: int
    source: str
    captured_at: datetime
    microusd_per_month: int = 0


@dataclass(frozen=True, slots=True)
class AddressRate:
    """The public address that lives and dies with the machine."""

    microusd_per_hour: int
    source: str
    captured_at: datetime


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that came to the machine from a bucket of another region, as known at `at`.

    microusd_per_gb: per 2^30 bytes. estimated: the size is what was to be read, not what was.
    """

    at: datetime
    size_bytes: int
    microusd_per_gb: int
    source: str
    captured_at: datetime
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine, as its bill sees it.

    `started_at` is None when it never ran: then nothing is owed. Sources are `TimeSource` values
    as stored. An `ended_at` before `started_at` happens when the two come from sources of
    different precision; it counts as no running time.
    """

    instance_id: UUID
    market: Market
    started_at: datetime | None
    started_source: str | None = None
    ended_at: datetime | None = None
    ended_source: str | None = None
    ended_by: EndedBy | None = None
    assignments: tuple[AssignmentSpan, ...] = ()
    disk: DiskRate | None = None
    public_ip: AddressRate | None = None
    transfers: tuple[Transfer, ...] = ()

    def __post_init__(self) -> None:
        for name, instant in (("started_at", self.started_at), ("ended_at", self.ended_at)):
            if instant is not None and instant.tzinfo is None:
                raise ValueError(
                    f"instance {self.instance_id}: {name} has no time zone; pass aware UTC times"
                )

    @property
    def times_estimated(self) -> bool:
        """True when the start or the end is our observation, not the cloud's statement."""
        return not ESTIMATED_SOURCES.isdisjoint({self.started_source, self.ended_source})
