"""Statements by hand for the routes that must be quick, on psycopg's async pool.

Lives here: knowing a key, and a page of the list of jobs.
Not here: how submissions are stored (`submission_batch`), the claim of the queue
(`claim_statements`), reports that may take their time (`job_read_models`), or any decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
import psycopg
from psycopg import OperationalError
from psycopg.errors import FeatureNotSupported
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy import ARRAY, Text, Uuid, bindparam, func, select

from app.domain.access.key_rules import USE_RECORDED_EVERY
from app.domain.launch_limits.limit_use import LimitUse
from app.storage.access.known_keys import (
    ACCESS_CHANGE,
    KEY_OF_DIGEST,
    PROJECT_OF_NAME,
    RULES_OF_PROJECT,
    USE_KEY,
    KnownKey,
    NamedProject,
    named_project,
    principal_of,
)
from app.storage.jobs.job_submission import KnownJob, Submission
from app.storage.jobs.queue_limits import QUEUE_LIMITS, full_queue
from app.storage.jobs.submission_batch import Pool, SubmissionBatch
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_list_statement import list_statement
from app.storage.reports.listed_jobs import listed_jobs
from app.storage.schema import tables
from app.storage.session.ready_statement import Ready
from app.storage.session.storage_errors import DatabaseFull

log = logging.getLogger(__name__)

STATEMENT_TIMEOUT_MS = 5_000
LOCK_TIMEOUT_MS = 2_000
_CONNECT_SECONDS = 5
# Its queue is fair, and readers come to it in turns: this long only when the database hangs.
_WAIT_FOR_CONNECTION_SECONDS = 8.0

_JOBS: Final = tables.jobs.c
_PROJECT: Final = bindparam("project_id", type_=Uuid)
KNOWN_JOB: Final = Ready(
    select(
        _JOBS.id, _JOBS.name, _JOBS.state, _JOBS.submitted_at, _JOBS.deadline_at,
        _JOBS.idempotency_digest,
    ).where(_JOBS.project_id == _PROJECT, _JOBS.idempotency_key == bindparam("key", type_=Text))
)  # fmt: skip
"""The columns of `KnownJob`."""

_TAKEN_NAMES: Final = Ready(
    select(_JOBS.name).where(
        _JOBS.project_id == _PROJECT,
        _JOBS.name == func.any(bindparam("names", type_=ARRAY(Text))),
    )
)


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

    def __init__(self, pool: Pool, only_reads: Callable[[], bool] = lambda: False) -> None:
        """only_reads: as for `make_engine`."""
        self._pool = pool
        self._only_reads = only_reads
        self._submissions = SubmissionBatch(pool)

    async def submit(self, submission: Submission) -> bool:
        """Store a new job; False, and nothing stored, when its name or key is taken, or the queue
        has no room for it. Raises DatabaseFull while only reads are allowed.
        """
        if self._only_reads():
            raise DatabaseFull("nothing is written while the disk is about to be full")
        return await self._submissions.store(submission)

    async def full_queue(self, project_id: UUID) -> LimitUse | None:
        """The limit of queued jobs that lets no other one in; None where there is room."""
        rows = await self._read(QUEUE_LIMITS, {"project_id": project_id})
        return full_queue(rows[0]) if rows else None

    async def known_job(self, project_id: UUID, idempotency_key: str) -> KnownJob | None:
        """The job that an idempotency key has made."""
        rows = await self._read(KNOWN_JOB, {"project_id": project_id, "key": idempotency_key})
        return KnownJob(*rows[0]) if rows else None

    async def taken_names(self, project_id: UUID, names: Sequence[str]) -> set[str]:
        """Which of the names are in use."""
        rows = await self._read(_TAKEN_NAMES, {"project_id": project_id, "names": list(names)})
        return {row[0] for row in rows}

    async def known_key(self, key_hash: str, now: datetime) -> KnownKey | None:
        """Whose key has this SHA-256; None when it is unknown, revoked or over.

        Writes its use where the last one that was written is old.
        """
        asked = {"key_hash": key_hash, "now": now, "use_is_old_at": now - USE_RECORDED_EVERY}
        rows = await self._read(KEY_OF_DIGEST, asked)
        if not rows:
            return None
        use_is_old, ends_at = rows[0][-2:]
        known = KnownKey(principal_of(rows[0]), ends_at)
        if use_is_old and not self._only_reads():
            await self._record_use({**asked, "key_id": known.principal.key_id})
        return known

    async def access_change(self) -> int | None:
        """Which transaction was the last to change what a `Principal` is made of; None: unknown."""
        rows = await self._read(ACCESS_CHANGE, {})
        return rows[0][0] if rows else None

    async def project(self, name: str, person_id: UUID | None) -> NamedProject | None:
        """The project of that name, with the role that the person has there."""
        rows = await self._read(PROJECT_OF_NAME, {"name": name, "person_id": person_id})
        return named_project(rows[0]) if rows else None

    async def project_rules(self, project_id: UUID) -> tuple[int, dict[str, Any] | None]:
        """The number of a project's rules, and the rules as they are stored."""
        rows = await self._read(RULES_OF_PROJECT, {"project_id": project_id})
        return (rows[0][0], rows[0][1]) if rows else (0, None)

    async def list_jobs(self, wanted: JobFilter, now: datetime) -> bytes:
        """The page as of now, as JSON: `{"items": […], "next": cursor | null}`."""
        statement, parameters = list_statement(wanted, now)
        rows = await self._rows(statement, parameters)
        return orjson.dumps(listed_jobs(rows[0][0], now))

    async def _record_use(self, given: Mapping[str, Any]) -> None:
        """A use that cannot be written, as on a full disk, must not refuse a request."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute(USE_KEY.text, USE_KEY.parameters(given))
        except (psycopg.Error, PoolTimeout) as error:
            log.warning("the last use of a key was not stored: %s", str(error).partition("\n")[0])

    async def _read(self, statement: Ready, given: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return await self._rows(statement.text, statement.parameters(given))

    async def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows; tried once more when the connection had gone, as after a restart of the server, or
        keeps a statement prepared whose columns a migration has changed.
        """
        for last_try in (False, True):
            async with self._pool.connection() as connection:
                try:
                    cursor = await connection.execute(statement, parameters)
                    return await cursor.fetchall()
                except OperationalError:
                    if last_try or not connection.broken:
                        raise
                except FeatureNotSupported:
                    # Nothing else makes it forget the statement: it would fail for ever.
                    await connection.close()
                    if last_try:
                        raise
        raise AssertionError("unreachable")
