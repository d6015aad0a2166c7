"""Statements by hand for the routes that must be quick, on psycopg's async pool.

Lives here: handing a job in (one statement, which the unit of work executes too), knowing a key,
and a page of the list of jobs, which PostgreSQL writes as JSON itself. Not here: reports that may
take their time (`job_read_models`), or any decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection, OperationalError
from psycopg_pool import AsyncConnectionPool

from app.adapters.postgres.job_list_statement import list_statement
from app.ports.job_reports import JobFilter, KeyOwner
from app.ports.job_submission import KnownJob, Submission

STATEMENT_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 2_000
_CONNECT_SECONDS = 5
_WAIT_FOR_CONNECTION_SECONDS = 3.0

# The budget and the event come from the job's RETURNING: when its name or its key is taken,
# nothing at all is stored. Foreign keys are checked at the end of the statement.
SUBMIT_JOB: Final = """
WITH job AS (
    INSERT INTO jobs (
        id, project_id, budget_id, name, spec, spec_digest, state, priority, node_count,
        version, event_seq, next_fence, capacity_key, market_mode,
        submitted_at, updated_at, queue_rank_at, deadline_at, max_wait_at, max_duration_seconds,
        timer_at, committed_step, total_steps, retries_used, consecutive_failures,
        attempts_without_progress, idempotency_key, idempotency_digest
    ) VALUES (
        %(job_id)s, %(project_id)s, %(budget_id)s, %(name)s, %(spec_json)s, %(spec_digest)s,
        'queued', %(priority)s, %(node_count)s,
        0, 1, 1, %(capacity_key)s, %(market_mode)s,
        %(submitted_at)s, %(submitted_at)s, %(queue_rank_at)s, %(deadline_at)s, %(max_wait_at)s,
        %(max_duration_seconds)s, %(timer_at)s, 0, %(total_steps)s, 0, 0,
        0, %(idempotency_key)s, %(idempotency_digest)s
    )
    ON CONFLICT DO NOTHING
    RETURNING id, project_id, budget_id, submitted_at
), budget AS (
    INSERT INTO budgets (id, project_id, job_id, cap_microusd, spent_microusd, reserved_microusd)
    SELECT budget_id, project_id, id, %(cap_microusd)s::bigint, 0, 0 FROM job
), event AS (
    INSERT INTO events (job_id, seq, at, actor, kind, noun, noun_id, to_state, message, data)
    SELECT id, 1, submitted_at, %(actor)s::text, 'submitted', 'job', id, 'queued',
        %(message)s::text, '{}'::jsonb
    FROM job
)
SELECT id FROM job
"""

KNOWN_JOB: Final = """
SELECT id, name, state, submitted_at, deadline_at, idempotency_digest
FROM jobs WHERE project_id = %(project_id)s AND idempotency_key = %(key)s
"""

_TAKEN_NAMES: Final = """
SELECT name FROM jobs WHERE project_id = %(project_id)s AND name = ANY(%(names)s)
"""

_KEY_OWNER: Final = """
SELECT api_keys.id, api_keys.name, api_keys.project_id, projects.name
FROM api_keys JOIN projects ON projects.id = api_keys.project_id
WHERE api_keys.key_hash = %(key_hash)s AND api_keys.revoked_at IS NULL
"""

Pool = AsyncConnectionPool[AsyncConnection[tuple[Any, ...]]]


def make_pool(url: str, *, max_size: int = 8) -> Pool:
    """A pool for `HotStatements`, not yet open. url: `postgresql+psycopg://…`."""
    options = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout={LOCK_TIMEOUT_MS} "
        "-c timezone=UTC"
    )
    return AsyncConnectionPool(
        url.replace("postgresql+psycopg://", "postgresql://", 1),
        # Each statement is its own transaction: one round trip, commit included.
        kwargs={
            "autocommit": True,
            "options": options,
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "lowtide-api",
        },
        min_size=1,
        max_size=max_size,
        timeout=_WAIT_FOR_CONNECTION_SECONDS,
        open=False,
    )


class HotStatements:
    """One statement per call. Raises psycopg.Error and psycopg_pool.PoolTimeout."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def submit(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken."""
        async with self._pool.connection() as connection:
            cursor = await connection.execute(SUBMIT_JOB, vars(submission))
            return await cursor.fetchone() is not None

    async def known_job(self, project_id: UUID, idempotency_key: str) -> KnownJob | None:
        """The job that an idempotency key has made."""
        rows = await self._read(KNOWN_JOB, {"project_id": project_id, "key": idempotency_key})
        return KnownJob(*rows[0]) if rows else None

    async def taken_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of the names are in use."""
        rows = await self._read(_TAKEN_NAMES, {"project_id": project_id, "names": list(names)})
        return {row[0] for row in rows}

    async def key_owner(self, key_hash: str) -> KeyOwner | None:
        """Whose key has this hash; None when it is unknown or revoked."""
        rows = await self._read(_KEY_OWNER, {"key_hash": key_hash})
        return KeyOwner(*rows[0]) if rows else None

    async def list_jobs(self, wanted: JobFilter) -> bytes:
        """The page as JSON: `{"items": […], "next": cursor | null}`."""
        statement, parameters = list_statement(wanted)
        rows = await self._read(statement, parameters)
        page: bytes = rows[0][0].encode()
        return page

    async def _read(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows; tried once more when the connection had gone, as after a restart of the server."""
        for last_try in (False, True):
            async with self._pool.connection() as connection:
                try:
                    cursor = await connection.execute(statement, parameters)
                    return await cursor.fetchall()
                except OperationalError:
                    if last_try or not connection.broken:
                        raise
        raise AssertionError("unreachable")
