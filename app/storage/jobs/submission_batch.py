"""Storing submissions: those that come while others are being stored go in one statement together.

Lives here: the statement, its one parameter, and who waits for whom. A submission that comes alone
is stored at once. Not here: how a submission is made (`app.orchestration.queue.submit_job`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import orjson
from psycopg import AsyncConnection, DataError, IntegrityError
from psycopg.errors import DeadlockDetected
from psycopg_pool import AsyncConnectionPool

from app.domain.audit.audit_action import AuditAction, AuditOutcome, SubjectKind
from app.storage.jobs.job_submission import Submission

Pool = AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]

TOGETHER_MAX: Final = 64
"""Most submissions in one statement."""

STATEMENTS_MAX: Final = 2
"""Statements at a time: one that waits for a lock does not hold up the rest."""

# Budgets and events come from what was inserted: of a submission whose name or key is taken, or
# that the queue has no room for, nothing at all is stored, nor in the audit. Queued jobs are
# counted only where they are limited. Foreign keys are checked at the end of the statement.
SUBMIT_JOBS: Final = """
WITH given AS (
    SELECT * FROM json_to_recordset(%(submissions)s::json) AS given (
        job_id uuid, project_id uuid, budget_id uuid, name text, spec_json text, spec_digest text,
        priority int, node_count int, capacity_key text, market_mode text,
        submitted_at timestamptz, queue_rank_at timestamptz, deadline_at timestamptz,
        max_wait_at timestamptz, max_duration_seconds int, timer_at timestamptz,
        total_steps bigint, budget_microusd bigint, idempotency_key text, idempotency_digest text,
        actor text, message text, owner_key_id uuid, owner_person_id uuid, spec_sources jsonb,
        audit_id uuid, address text, request_id text
    )
), own AS (
    SELECT projects.id AS project_id, CASE
        WHEN (projects.rules -> 'limits' -> 'queued_jobs') IS NOT NULL
        THEN (projects.rules -> 'limits' ->> 'queued_jobs')::int - (
            SELECT count(*) FROM jobs WHERE jobs.project_id = projects.id AND state = 'queued'
        ) END AS room
    FROM projects WHERE projects.id IN (SELECT project_id FROM given)
), shared AS (
    SELECT CASE WHEN (limits -> 'queued_jobs') IS NOT NULL
        THEN (limits ->> 'queued_jobs')::int - (SELECT count(*) FROM jobs WHERE state = 'queued')
        END AS room
    FROM deployment_limits
), accepted AS (
    SELECT given.*,
        row_number() OVER (PARTITION BY given.project_id ORDER BY submitted_at, job_id) AS own_no,
        row_number() OVER (ORDER BY submitted_at, job_id) AS shared_no
    FROM given
), job AS (
    INSERT INTO jobs (
        id, project_id, budget_id, name, spec, spec_digest, state, priority, node_count,
        version, event_seq, next_fence, capacity_key, market_mode,
        submitted_at, updated_at, queue_rank_at, deadline_at, max_wait_at, max_duration_seconds,
        timer_at, committed_step, total_steps, retries_used, consecutive_failures,
        attempts_without_progress, idempotency_key, idempotency_digest, owner_key_id,
        owner_person_id, spec_sources
    )
    SELECT job_id, project_id, budget_id, name, spec_json::jsonb, spec_digest,
        'queued', priority, node_count,
        0, 1, 1, capacity_key, market_mode,
        submitted_at, submitted_at, queue_rank_at, deadline_at, max_wait_at,
        max_duration_seconds, timer_at, 0, total_steps, 0, 0,
        0, idempotency_key, idempotency_digest, owner_key_id,
        owner_person_id, spec_sources
    FROM accepted LEFT JOIN own USING (project_id) LEFT JOIN shared ON true
    WHERE (own.room IS NULL OR own_no <= own.room)
        AND (shared.room IS NULL OR shared_no <= shared.room)
    ON CONFLICT DO NOTHING
    RETURNING id
), stored AS (
    SELECT given.* FROM job JOIN given ON given.job_id = job.id
), budget AS (
    INSERT INTO budgets (id, project_id, job_id, cap_microusd, spent_microusd, reserved_microusd)
    SELECT budget_id, project_id, job_id, budget_microusd, 0, 0 FROM stored
), event AS (
    INSERT INTO events (job_id, seq, at, actor, kind, noun, noun_id, to_state, message, data)
    SELECT job_id, 1, submitted_at, actor, 'submitted', 'job', job_id, 'queued', message,
        '{}'::jsonb
    FROM stored
), audit AS (
    INSERT INTO audit_entries (
        id, at, project_id, key_id, person_id, address, request_id,
        action, subject_kind, subject_id, subject_name, digest_after, outcome
    )
    SELECT audit_id, submitted_at, project_id, owner_key_id, owner_person_id, address, request_id,
        %(action)s::text, %(kind)s::text, job_id::text, name, spec_digest, %(outcome)s::text
    FROM stored WHERE audit_id IS NOT NULL
)
SELECT id FROM job
"""


_AUDITED: Final = {
    "action": AuditAction.JOB_SUBMIT.value,
    "kind": SubjectKind.JOB.value,
    "outcome": AuditOutcome.DONE.value,
}


def submissions_parameter(submissions: Sequence[Submission]) -> dict[str, str]:
    """The parameters of SUBMIT_JOBS; it returns the ids of those that were stored."""
    return {"submissions": orjson.dumps(submissions).decode(), **_AUDITED}


class SubmissionBatch:
    """Stores submissions on a pool; for one event loop. Raises psycopg.Error and PoolTimeout."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: list[tuple[Submission, asyncio.Future[bool]]] = []
        self._storing = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def store(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken, or the queue
        has no room for it.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, answer))
        if self._storing < STATEMENTS_MAX:
            self._storing += 1
            task = asyncio.create_task(self._store_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                await self._store_some()
        finally:
            # In the very step that saw nobody waiting: who comes next finds room for a task.
            self._storing -= 1

    async def _store_some(self) -> None:
        taken, self._waiting = self._waiting[:TOGETHER_MAX], self._waiting[TOGETHER_MAX:]
        # In one order everywhere: two processes that store the same keys do not lock crosswise.
        taken.sort(key=_locking_order)
        try:
            stored = await self._execute([submission for submission, _ in taken])
        except (DataError, IntegrityError, DeadlockDetected) as error:
            await self._store_singly(taken, error)
        except Exception as error:
            for _, answer in taken:
                _fail(answer, error)
        else:
            for submission, answer in taken:
                if not answer.done():
                    answer.set_result(submission.job_id in stored)

    async def _store_singly(
        self, taken: list[tuple[Submission, asyncio.Future[bool]]], error: Exception
    ) -> None:
        """One was refused, and with it nothing of the others was stored: each for itself now."""
        if len(taken) == 1:
            _fail(taken[0][1], error)
            return
        for submission, answer in taken:
            try:
                stored = await self._execute([submission])
            except Exception as own:
                _fail(answer, own)
            else:
                if not answer.done():
                    answer.set_result(bool(stored))

    async def _execute(self, submissions: Sequence[Submission]) -> set[object]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(
                SUBMIT_JOBS, submissions_parameter(submissions), prepare=True
            )
            return {row[0] for row in await cursor.fetchall()}


def _locking_order(one: tuple[Submission, object]) -> tuple[str, str, str]:
    submission = one[0]
    return (str(submission.project_id), submission.idempotency_key or "", submission.name)


def _fail(answer: asyncio.Future[bool], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
