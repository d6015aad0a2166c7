"""Decisions about jobs' machines in PostgreSQL. Not here: how they are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Integer, and_, bindparam, select

from app.domain.placement.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    decision_of,
    document_of,
    kind_of_outline,
)
from app.storage.schema.job_tables import attempts, placement_decisions
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import RecordSession, Repository, Row
from app.storage.session.statement_runner import Statement


@dataclass(frozen=True)
class KeptDecision:
    """A decision and until when it was last found to hold.

    decision_no: counts from 1 within the job. `decision.decided_at` is when it was first made; its
    figures are those of `last_confirmed_at`.
    """

    job_id: UUID
    decision_no: int
    last_confirmed_at: datetime
    decision: PlacementDecision


KEPT_MOST = 200
"""Decisions that are kept of a job: the newest. One that changes at every look stays bounded."""

_kept = placement_decisions.c
_OF_JOB = Ready(
    select(
        _kept.job_id,
        _kept.decision_no,
        _kept.decided_at,
        _kept.last_confirmed_at,
        _kept.document,
        attempts.c.node_count,
    )
    .outerjoin(
        attempts,
        and_(
            attempts.c.job_id == _kept.job_id,
            attempts.c.fence == _kept.document["fence"].astext.cast(Integer),
        ),
    )
    .where(_kept.job_id == bindparam("of_job"))
    .order_by(_kept.decision_no.desc())
    .limit(bindparam("at_most", type_=Integer))
)
_LATEST_OUTLINE = Ready(
    select(_kept.outline)
    .where(_kept.job_id == bindparam("of_job"))
    .order_by(_kept.decision_no.desc())
    .limit(1)
)
_RECORD = """
WITH newest AS (
    SELECT decision_no, outline FROM placement_decisions
    WHERE job_id = %(job)s::uuid ORDER BY decision_no DESC LIMIT 1
), confirmed AS (
    UPDATE placement_decisions AS kept
    SET last_confirmed_at = %(at)s::timestamptz, document = %(document)s::jsonb
    FROM newest
    WHERE kept.job_id = %(job)s::uuid AND kept.decision_no = newest.decision_no
        AND newest.outline = %(outline)s::text
    RETURNING kept.decision_no
), forgotten AS (
    DELETE FROM placement_decisions AS old USING newest
    WHERE old.job_id = %(job)s::uuid AND old.decision_no <= newest.decision_no + 1 - %(most)s::int
)
INSERT INTO placement_decisions
    (job_id, decision_no, decided_at, last_confirmed_at, outline, document)
SELECT %(job)s::uuid, coalesce((SELECT decision_no FROM newest), 0) + 1,
    %(at)s::timestamptz, %(at)s::timestamptz, %(outline)s::text, %(document)s::jsonb
WHERE NOT EXISTS (SELECT 1 FROM confirmed)
"""


class PlacementDecisionRows(Repository):
    """One row for each decision that differs from the one before."""

    def __init__(self, session: RecordSession) -> None:
        super().__init__(session)
        self._waiting: list[tuple[UUID, PlacementDecision]] = []
        session.append_with_flush(self._statements)

    def record(self, job_id: UUID, decision: PlacementDecision) -> None:
        """Keep a decision of a job, whose row is locked.

        One with the outline of the job's newest only renews that one's figures and
        `last_confirmed_at`, so that a job that waits for days does not fill the table.
        """
        self._waiting.append((job_id, decision))

    def latest(self, job_id: UUID) -> KeptDecision | None:
        """The newest one."""
        return next(iter(self.of_job(job_id, 1)), None)

    def latest_kind(self, job_id: UUID) -> tuple[DecisionVerdict, str] | None:
        """Verdict and reason of the newest one."""
        if self._waiting:
            self._session.flush()
        for row in self._session.rows(_LATEST_OUTLINE, {"of_job": job_id}):
            return kind_of_outline(row[0])
        return None

    def of_job(self, job_id: UUID, limit: int) -> list[KeptDecision]:
        """The newest ones first."""
        if self._waiting:
            self._session.flush()
        rows = self._session.rows(_OF_JOB, {"of_job": job_id, "at_most": limit})
        return [_read(row) for row in rows]

    def _statements(self) -> Iterator[Statement]:
        waiting, self._waiting = self._waiting, []
        for job_id, decision in waiting:
            given: dict[str, Any] = {
                "job": job_id,
                "at": decision.decided_at,
                "outline": decision.outline,
                "document": Jsonb(document_of(decision)),
                "most": KEPT_MOST,
            }
            yield _RECORD, given


def _read(row: Row) -> KeptDecision:
    decided_at: datetime = row[2]
    stored: dict[str, object] = row[4]
    decision = decision_of({**stored, "decided_at": decided_at.isoformat()})
    if decision.node_count is None:  # of a release that did not keep it
        decision = replace(decision, node_count=row[5])
    return KeptDecision(row[0], row[1], row[3], decision)
