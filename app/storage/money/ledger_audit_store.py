"""Ledger and rollup compared for some machines at a time, in PostgreSQL; and what was found.

Both sides are read by the machine, for which both have an index, so that a slice costs what its
machines have booked and nothing else. Not here: when slices are compared
(`app.orchestration.money.check_books`), or the whole verification that a person asks for
(`cost_verification`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert as upsert

from app.storage.schema import tables
from app.storage.schema.money_tables import books_differences, books_passes
from app.storage.session.record_session import Repository


@dataclass(frozen=True)
class BooksPass:
    """How far the comparison has come.

    begun_at: whatever was booked by then was committed when the pass under way began; None between
    two passes. after_id: the last machine it has compared. checked_at: the same of the last pass
    that reached the end, so that whatever was booked by then is compared; None before the first.
    """

    next_at: datetime
    begun_at: datetime | None = None
    after_id: UUID | None = None
    machines: int = 0
    checked_at: datetime | None = None
    checked_machines: int = 0


_NIL: Final = UUID(int=0)

# What a rollup row adds up, added up again; payers may be nobody, so that no join would find them.
_COMPARE = text("""
INSERT INTO books_differences (
    instance_id, rollup_key, day, project_id, booked_microusd, rolled_up_microusd, found_at
)
SELECT instance_id, rollup_key, day, project_id, sum(booked), sum(rolled_up), :now
FROM (
    SELECT instance_id, day, project_id, rollup_key,
        0::bigint AS booked, amount_microusd AS rolled_up
    FROM cost_rollups WHERE instance_id = ANY(:ids)
    UNION ALL
    SELECT instance_id, (usage_hour_at AT TIME ZONE 'UTC')::date, project_id,
        concat_ws(
            '/', (usage_hour_at AT TIME ZONE 'UTC')::date, coalesce(project_id::text, 'None'),
            coalesce(job_id::text, 'None'), component, kind
        ),
        amount_microusd, 0
    FROM ledger_entries WHERE instance_id = ANY(:ids)
) AS sides
GROUP BY instance_id, rollup_key, day, project_id
HAVING sum(booked) <> sum(rolled_up)
""")

# Nobody but our own programs books, and all of them name themselves so (`engine`). Of a program
# that has another role this one would see no start. Our transactions end within a minute or two.
_OLDEST_OPEN = text("""
SELECT clock_timestamp() - min(xact_start) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'lowtide%'
""")
_TICK = timedelta(microseconds=1)


class LedgerAuditStore(Repository):
    """Ledger against rollup."""

    def progress(self, *, lock: bool = False) -> BooksPass | None:
        """How far the comparison has come; None before the first. lock: against another worker."""
        table = books_passes
        statement = select(
            table.c.next_at,
            table.c.begun_at,
            table.c.after_id,
            table.c.machines,
            table.c.checked_at,
            table.c.checked_machines,
        )
        row = self._session.execute(statement.with_for_update() if lock else statement).first()
        return None if row is None else BooksPass(*row)

    def save_progress(self, progress: BooksPass) -> None:
        """Remember it."""
        values = asdict(progress)
        self._session.execute(
            upsert(books_passes)
            .values(id=1, **values)
            .on_conflict_do_update(index_elements=["id"], set_=values)
        )

    def committed_until(self, now: datetime) -> datetime:
        """The latest instant, `now` at most, by which whatever was booked is committed: an open
        transaction may still commit what it books at any time since its own start.
        """
        age = self._session.execute(_OLDEST_OPEN).scalar_one()
        return now if age is None else now - max(age, timedelta()) - _TICK

    def compare(self, after_id: UUID | None, limit: int, now: datetime) -> list[UUID]:
        """Compare the next machines by id and keep the differences found, in place of those found
        before; the machines compared, fewer than `limit` at the end.
        """
        instances = tables.instances.c
        statement = (
            select(instances.id)
            .where(instances.id > (after_id or _NIL))
            .order_by(instances.id)
            .limit(limit)
        )
        ids = [row[0] for row in self._session.execute(statement)]
        if ids:
            self._session.execute(
                delete(books_differences).where(books_differences.c.instance_id.in_(ids))
            )
            self._session.execute(_COMPARE, {"ids": ids, "now": now})
        return ids

    def count_differences(self, ids: Sequence[UUID]) -> int:
        """How many differences were found of these machines."""
        statement = select(func.count()).where(books_differences.c.instance_id.in_(ids))
        count: int = self._session.execute(statement).scalar_one()
        return count
