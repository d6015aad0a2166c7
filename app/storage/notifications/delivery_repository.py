"""Deliveries in PostgreSQL: which are due, what became of them, and what people read of them.

Not here: writing them (`outbox`), or sending them (`app.orchestration.notifications`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, delete, func, select, text, update

from app.domain.notifications.channel_targets import ChannelKind
from app.domain.notifications.delivery_rules import HOURLY_MAX, UNDONE, WINDOW, DeliveryState
from app.domain.notifications.message import MessageDocument
from app.storage.schema.notification_tables import notification_channels, notification_deliveries
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

_D: Final = notification_deliveries
_C: Final = notification_channels
_ADMITTED_MAX: Final = 500
_REMOVED_MAX: Final = 500
_DIGESTED_MAX: Final = 10_000

# The sender alone runs it, one worker at a time, so that the count is exact.
_ADMIT: Final = text("""
WITH fresh AS (
    SELECT id, source_id, channel_id, created_at FROM notification_deliveries
    WHERE state = 'new' ORDER BY created_at, id LIMIT :at_most FOR UPDATE SKIP LOCKED
), numbered AS (
    SELECT id, row_number() OVER (PARTITION BY source_id, channel_id ORDER BY created_at, id) + (
        SELECT count(*) FROM notification_deliveries AS sent
        WHERE sent.source_id = fresh.source_id AND sent.channel_id = fresh.channel_id
            AND sent.admitted_at > :since
    ) AS number
    FROM fresh
)
UPDATE notification_deliveries AS d SET
    state = CASE WHEN n.number <= :hourly_max THEN 'waiting' ELSE 'held' END,
    admitted_at = CASE WHEN n.number <= :hourly_max THEN CAST(:now AS timestamptz) END,
    next_try_at = CASE WHEN n.number <= :hourly_max THEN CAST(:now AS timestamptz) END
FROM numbered AS n WHERE d.id = n.id
""")


# From channel to channel by the index, and of each the oldest alone: behind a channel that does not
# answer thousands may wait. The last row of the recursion has no channel, and joins none.
_OLDEST: Final = """
WITH RECURSIVE waiting AS (
    (
        SELECT channel_id FROM notification_deliveries
        WHERE state = 'waiting' ORDER BY channel_id LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT d.channel_id FROM notification_deliveries d
        WHERE d.state = 'waiting' AND d.channel_id > waiting.channel_id
        ORDER BY d.channel_id LIMIT 1
    )
    FROM waiting WHERE waiting.channel_id IS NOT NULL
), oldest AS (
    SELECT of_channel.id, of_channel.next_try_at, c.rests_until_at, (
        SELECT max(d.leased_until_at) FROM notification_deliveries d
        WHERE d.channel_id = c.id AND d.state = 'waiting' AND d.leased_until_at IS NOT NULL
    ) AS leased_until_at
    FROM waiting
    JOIN notification_channels c ON c.id = waiting.channel_id
    CROSS JOIN LATERAL (
        SELECT d.id, d.next_try_at FROM notification_deliveries d
        WHERE d.channel_id = c.id AND d.state = 'waiting'
        ORDER BY d.next_try_at, d.id LIMIT 1
    ) AS of_channel
)
"""
# GREATEST leaves out what is NULL.
_DUE: Final = text(f"""{_OLDEST}
SELECT id FROM oldest
WHERE greatest(next_try_at, rests_until_at, leased_until_at) <= CAST(:now AS timestamptz)
ORDER BY next_try_at, id
LIMIT CAST(:at_most AS int)
""")
_NEXT: Final = Ready(
    text(f"""{_OLDEST}
SELECT
    (SELECT min(created_at) FROM notification_deliveries WHERE state = 'new'),
    (SELECT min(greatest(next_try_at, rests_until_at, leased_until_at)) FROM oldest),
    (SELECT min(created_at) FROM notification_deliveries WHERE state = 'held')
"""),
    frozenset({"notification_deliveries", "notification_channels"}),
)


@dataclass(frozen=True)
class DeliveryRow:
    """A delivery as people read it. tries: that were made. last_answer: what came of the last."""

    id: UUID
    channel_id: UUID
    channel: str
    kind: str
    job_id: UUID | None
    message: Mapping[str, Any]
    state: DeliveryState
    created_at: datetime
    tries: int
    next_try_at: datetime | None
    last_tried_at: datetime | None
    last_answer: str | None
    ended_at: datetime | None


@dataclass(frozen=True)
class DueDelivery:
    """A delivery whose next try has come, with its channel. tries: that were made."""

    id: UUID
    channel_id: UUID
    project_id: UUID
    kind: ChannelKind
    message: MessageDocument
    tries: int


@dataclass(frozen=True)
class HeldGroup:
    """Deliveries of one source to one channel that were too many for their hour."""

    source_id: UUID
    channel_id: UUID
    project_id: UUID
    first_at: datetime
    count: int


class DeliveryRepository(Repository):
    """Deliveries, in the store."""

    def admit(self, now: datetime) -> None:
        """Give new deliveries their first try, but for those that are too many for their hour."""
        self._session.execute(
            _ADMIT,
            {
                "at_most": _ADMITTED_MAX,
                "since": now - WINDOW,
                "hourly_max": HOURLY_MAX,
                "now": now,
            },
        )

    def lease_due(self, now: datetime, until: datetime, limit: int) -> list[DueDelivery]:
        """Due deliveries, one of each channel that neither rests nor is called now, removed ones
        among them; they are another worker's again from `until` on.
        """
        found = self._session.execute(_DUE, {"now": now, "at_most": limit})
        due = (
            select(_D.c.id)
            .where(
                _D.c.id.in_([row[0] for row in found]),
                _D.c.state == DeliveryState.WAITING,
                _D.c.next_try_at <= now,
            )
            .with_for_update(skip_locked=True)
        )
        ids = [row[0] for row in self._session.execute(due)]
        if not ids:
            return []
        self._session.execute(update(_D).where(_D.c.id.in_(ids)).values(leased_until_at=until))
        statement = (
            select(_D.c.id, _D.c.channel_id, _D.c.project_id, _C.c.kind, _D.c.message, _D.c.tries)
            .join(_C, _C.c.id == _D.c.channel_id)
            .where(_D.c.id.in_(ids))
            .order_by(_D.c.next_try_at, _D.c.id)
        )
        return [DueDelivery(*row) for row in self._session.execute(statement)]

    def next_due_at(self) -> datetime | None:
        """When the next delivery is to be looked at; None while nothing waits."""
        [(fresh, waiting, held)] = self._session.rows(_NEXT)
        times = [fresh, waiting, None if held is None else held + WINDOW]
        return min((one for one in times if one is not None), default=None)

    def record_try(
        self,
        delivery_id: UUID,
        state: DeliveryState,
        now: datetime,
        answer: str,
        next_try_at: datetime | None,
    ) -> None:
        """Write down what came of a try, unless the delivery was ended meanwhile."""
        ended = None if state in UNDONE else now
        self._session.execute(
            update(_D)
            .where(_D.c.id == delivery_id, _D.c.state == DeliveryState.WAITING)
            .values(
                state=state,
                tries=_D.c.tries + 1,
                next_try_at=next_try_at,
                leased_until_at=None,
                last_tried_at=now,
                last_answer=answer,
                ended_at=ended,
            )
        )

    def held_groups(self, until: datetime, limit: int) -> list[HeldGroup]:
        """What is held since then or longer, the longest first."""
        first_at = func.min(_D.c.created_at)
        statement = (
            select(_D.c.source_id, _D.c.channel_id, _D.c.project_id, first_at, func.count())
            .where(_D.c.state == DeliveryState.HELD)
            .group_by(_D.c.source_id, _D.c.channel_id, _D.c.project_id)
            .having(first_at <= until)
            .order_by(first_at, _D.c.source_id, _D.c.channel_id)
            .limit(limit)
        )
        return [HeldGroup(*row) for row in self._session.execute(statement)]

    def digest(self, group: HeldGroup, now: datetime) -> list[MessageDocument]:
        """Mark what a group holds as told by a digest; the messages, the oldest first."""
        some = (
            select(_D.c.id)
            .where(
                _D.c.source_id == group.source_id,
                _D.c.channel_id == group.channel_id,
                _D.c.state == DeliveryState.HELD,
            )
            .order_by(_D.c.created_at, _D.c.id)
            .limit(_DIGESTED_MAX)
        )
        found = self._session.execute(
            update(_D)
            .where(_D.c.id.in_(some))
            .values(state=DeliveryState.DIGESTED, ended_at=now)
            .returning(_D.c.created_at, _D.c.id, _D.c.message)
        )
        return [row[2] for row in sorted(found, key=lambda row: (row[0], row[1]))]

    def end_of_channel(self, channel_id: UUID, now: datetime, why: str) -> None:
        """Give up what a channel has not been sent."""
        self._session.execute(
            update(_D)
            .where(_D.c.channel_id == channel_id, _D.c.state.in_(UNDONE))
            .values(state=DeliveryState.FAILED, next_try_at=None, last_answer=why, ended_at=now)
        )

    def remove_old(self, before: datetime) -> None:
        """Remove some deliveries that have ended and are older."""
        old = (
            select(_D.c.id)
            .where(_D.c.created_at < before, _D.c.ended_at.is_not(None))
            .order_by(_D.c.created_at, _D.c.id)
            .limit(_REMOVED_MAX)
        )
        self._session.execute(delete(_D).where(_D.c.id.in_(old)))

    def of_project(
        self,
        project_id: UUID,
        limit: int,
        after: UUID | None = None,
        state: DeliveryState | None = None,
    ) -> list[DeliveryRow]:
        """A project's deliveries, the newest first. after: the id before."""
        statement = _read().where(_D.c.project_id == project_id)
        if after is not None:
            statement = statement.where(_D.c.id < after)
        if state is not None:
            statement = statement.where(_D.c.state == state)
        found = self._session.execute(statement.order_by(_D.c.id.desc()).limit(limit))
        return [DeliveryRow(**row) for row in found.mappings()]

    def one(
        self, project_id: UUID, delivery_id: UUID, *, locked: bool = False
    ) -> DeliveryRow | None:
        """The project's delivery of that id."""
        statement = _read().where(_D.c.project_id == project_id, _D.c.id == delivery_id)
        found = self._session.execute(statement.with_for_update(of=_D) if locked else statement)
        return next((DeliveryRow(**row) for row in found.mappings()), None)

    def send_again(self, delivery_id: UUID, now: datetime) -> None:
        """Let a delivery that has ended be tried anew, under its id."""
        self._session.execute(
            update(_D)
            .where(_D.c.id == delivery_id)
            .values(
                state=DeliveryState.WAITING,
                tries=0,
                next_try_at=now,
                admitted_at=now,
                leased_until_at=None,
                ended_at=None,
            )
        )


def _read() -> Select[Any]:
    columns = [
        _C.c.name.label("channel") if one.name == "channel" else _D.c[one.name]
        for one in fields(DeliveryRow)
    ]
    return select(*columns).join(_C, _C.c.id == _D.c.channel_id)
