"""The outbox: deliveries written in the transaction of what they tell of.

Looking who is told costs one statement where something is told, and nothing else. Not here: sending
them, and what became of them (`delivery_repository`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import text

from app.domain.notifications.delivery_rules import DeliveryState
from app.domain.notifications.triggers import Trigger
from app.domain.wording.why_words import LastEnd
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession
from app.storage.session.statement_runner import Statement

_TABLES: Final = frozenset({"notification_rules", "notification_channels", "projects"})
# Without a project: what concerns the deployment, told by whichever project's rules.
_TOLD: Final = Ready(
    text("""
SELECT r.id, r.channel_id, r.project_id, p.name
FROM notification_rules r JOIN projects p ON p.id = r.project_id
WHERE r.trigger = CAST(:trigger AS text)
    AND (CAST(:project_id AS uuid) IS NULL OR r.project_id = CAST(:project_id AS uuid))
UNION ALL
SELECT CAST(:job_id AS uuid), c.id, c.project_id, p.name
FROM notification_channels c JOIN projects p ON p.id = c.project_id
WHERE c.project_id = CAST(:project_id AS uuid) AND c.removed_at IS NULL
    AND c.name = ANY(CAST(:names AS text[]))
ORDER BY 2, 1
"""),
    _TABLES,
)
# As it is booked: it writes nothing before, as a job in the middle of a change asks for it.
_SPENT: Final = Ready(
    text("SELECT spent_microusd FROM budgets WHERE id = CAST(:budget_id AS uuid)"), frozenset()
)
# A wait begins with the submission, the end of the last attempt, or when a person resumed the job.
# A job that a budget of a month has paused waits for the next month.
_LONG_WAITS: Final = Ready(
    text("""
SELECT r.id, r.channel_id, r.project_id, p.name, j.id, r.after_seconds, w.occasion,
    EXISTS (
        SELECT FROM checkpoints c WHERE c.job_id = j.id AND (NOT c.final OR c.size_bytes > 0)
    ),
    last.end_reason, last.end_message, last.committed_step
FROM notification_rules r
JOIN projects p ON p.id = r.project_id
JOIN jobs j ON j.project_id = r.project_id
CROSS JOIN LATERAL (
    SELECT greatest(
        j.submitted_at,
        (SELECT max(a.ended_at) FROM attempts a WHERE a.job_id = j.id),
        (SELECT max(e.at) FROM events e WHERE e.job_id = j.id AND e.kind = 'resumed')
    ) AS since
) AS began
LEFT JOIN LATERAL (
    SELECT a.end_reason, a.end_message, a.committed_step FROM attempts a
    WHERE a.job_id = j.id AND a.end_reason IS NOT NULL ORDER BY a.fence DESC LIMIT 1
) AS last ON true
CROSS JOIN LATERAL (
    SELECT concat_ws('/', 'wait', r.id, j.id, extract(epoch FROM began.since)) AS occasion
) AS w
WHERE r.trigger = 'waiting'
    AND NOT (j.state IN ('cancelled', 'failed', 'succeeded'))
    AND (j.state IN ('queued', 'recovering') OR (
        j.state = 'paused' AND j.paused_by_budget IN ('project_month', 'deployment_month')
    ))
    AND j.submitted_at <= CAST(:now AS timestamptz) - r.after_seconds * interval '1 second'
    AND began.since <= CAST(:now AS timestamptz) - r.after_seconds * interval '1 second'
    AND NOT EXISTS (
        SELECT FROM notification_deliveries d
        WHERE d.channel_id = r.channel_id AND d.occasion = w.occasion
    )
ORDER BY began.since, j.id, r.id
LIMIT CAST(:at_most AS int)
"""),
    frozenset({"jobs", "attempts"}),
)
_WAIT_RULE: Final = Ready(
    text("SELECT 1 FROM notification_rules WHERE trigger = 'waiting' LIMIT 1"),
    frozenset({"notification_rules"}),
)
_ADD: Final = """
INSERT INTO notification_deliveries (
    id, project_id, channel_id, source_id, kind, occasion, job_id, message, state, created_at,
    admitted_at, tries, next_try_at
)
VALUES (
    %(id)s::uuid, %(project_id)s::uuid, %(channel_id)s::uuid, %(source_id)s::uuid,
    %(kind)s::text, %(occasion)s::text, %(job_id)s::uuid, %(message)s::jsonb, %(state)s::text,
    %(created_at)s::timestamptz, %(admitted_at)s::timestamptz, 0, %(next_try_at)s::timestamptz
)
ON CONFLICT (channel_id, occasion) DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class ToldChannel:
    """A channel that is told. source_id: the rule, or the job whose spec names the channel."""

    source_id: UUID
    channel_id: UUID
    project_id: UUID
    project: str


@dataclass(frozen=True, slots=True)
class LongWait:
    """A job that waits for longer than a rule allows. occasion: this wait, by this rule.
    has_checkpoint, last_end: of the job, as `JobStanding` has them.
    """

    told: ToldChannel
    job_id: UUID
    after_seconds: int
    occasion: str
    has_checkpoint: bool
    last_end: LastEnd | None


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A delivery as it is written. occasion: what it tells of; a channel is told of one once.

    admitted_at: None where it is to be seen yet whether the source has sent too many.
    """

    id: UUID
    project_id: UUID
    channel_id: UUID
    source_id: UUID
    kind: str
    occasion: str
    job_id: UUID | None
    message: dict[str, Any]
    created_at: datetime
    admitted_at: datetime | None = None


class NotificationOutbox:
    """New deliveries, sent to the database with the transaction's last statements."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session
        self._waiting: list[NewDelivery] = []
        session.append_with_flush(self._statements)

    def told(
        self,
        trigger: Trigger,
        project_id: UUID | None,
        job_id: UUID | None = None,
        names: Sequence[str] = (),
    ) -> list[ToldChannel]:
        """Who is told. project_id: None for what concerns the deployment. names: the channels that
        the job's own spec names.
        """
        given = {
            "trigger": trigger.value,
            "project_id": project_id,
            "job_id": job_id,
            "names": list(names),
        }
        return [ToldChannel(*row) for row in self._session.rows(_TOLD, given)]

    def spent_microusd(self, budget_id: UUID) -> int:
        """What is booked on a job's budget."""
        found: int | None = self._session.scalar(_SPENT, {"budget_id": budget_id})
        return found or 0

    def long_waits(self, now: datetime, limit: int) -> list[LongWait]:
        """Waits that are too long for a rule which has not told of them, the longest first."""
        rows = self._session.rows(_LONG_WAITS, {"now": now, "at_most": limit})
        return [
            LongWait(
                told=ToldChannel(*row[:4]),
                job_id=row[4],
                after_seconds=row[5],
                occasion=row[6],
                has_checkpoint=row[7],
                last_end=None if row[8] is None else LastEnd(*row[8:]),
            )
            for row in rows
        ]

    def has_wait_rules(self) -> bool:
        """Whether any rule is about waits."""
        return self._session.row(_WAIT_RULE) is not None

    def add(self, delivery: NewDelivery) -> None:
        """Write it when the transaction is written; one of the same occasion stays as it is."""
        self._waiting.append(delivery)

    def _statements(self) -> Iterator[Statement]:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            state = DeliveryState.NEW if one.admitted_at is None else DeliveryState.WAITING
            values = {field.name: getattr(one, field.name) for field in fields(one)}
            yield (
                _ADD,
                {
                    **values,
                    "message": Jsonb(one.message),
                    "state": state.value,
                    "next_try_at": one.admitted_at,
                },
            )
