"""How long machines of each pool lived and how many the cloud took, counted in PostgreSQL.

A machine's life is cut at the ages between which the hazard is taken to be constant. Not here:
what the counts mean (`app.domain.pool_life`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Float, cast, func, literal, select
from sqlalchemy.sql.elements import ColumnElement

from app.adapters.postgres.instance_tables import instances, launches
from app.adapters.postgres.record_session import RecordSession
from app.domain.instance import EndedBy
from app.domain.launch import LaunchOutcome
from app.domain.offer import Pool
from app.domain.pool_life import AGE_EDGES_SECONDS, Experience

POOLS_MAX = 500

_row = instances.c
_AGES = (0.0, *AGE_EDGES_SECONDS)
_ENDS = (*AGE_EDGES_SECONDS, None)


class ExperienceStatements:
    """Implements `app.ports.pool_experience.PoolExperience`."""

    def __init__(self, session: RecordSession) -> None:
        self._session = session

    def of(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with these pools since then; pools never rented in are left out."""
        asked = sorted(set(pools))[:POOLS_MAX]
        ended = func.coalesce(_row.ended_at, literal(now))
        lived: ColumnElement[float] = cast(func.extract("epoch", ended - _row.launched_at), Float)
        taken = _row.ended_by == EndedBy.CLOUD_INTERRUPTION
        columns: list[ColumnElement[Any]] = []
        for begin, end in zip(_AGES, _ENDS, strict=True):
            most = lived if end is None else func.least(lived, end)
            columns.append(func.sum(func.greatest(0.0, most - begin)))
            inside = lived >= begin if end is None else (lived >= begin) & (lived < end)
            columns.append(func.count().filter(taken & inside))
        rows = self._session.execute(
            select(_row.pool, func.count(), *columns)
            .where(_row.pool.in_(asked), _row.launched_at.is_not(None), _row.launched_at >= since)
            .group_by(_row.pool)
            .order_by(_row.pool)
        )
        refused = self._refused(since)
        found = {row[0]: _experience(row[1], refused.get(row[0].key, 0), row[2:]) for row in rows}
        for pool in asked:
            if pool not in found and pool.key in refused:
                found[pool] = _experience(0, refused[pool.key], (0.0,) * 10)
        return found

    def _refused(self, since: datetime) -> dict[str, int]:
        """Calls that came back without a machine, by each pool that they named."""
        bids = (
            select(func.jsonb_array_elements(launches.c.bids).op("->>")("pool").label("pool"))
            .where(launches.c.outcome == LaunchOutcome.REFUSED, launches.c.created_at >= since)
            .subquery()
        )
        rows = self._session.execute(
            select(bids.c.pool, func.count().label("calls"))
            .group_by(bids.c.pool)
            .order_by(bids.c.pool)
        )
        return {row.pool: row.calls for row in rows}


def _experience(launches: int, refusals: int, counts: Sequence[float]) -> Experience:
    lived = [float(value) for value in counts[0::2]]
    taken = [int(value) for value in counts[1::2]]
    return Experience(
        lived_seconds=(lived[0], lived[1], lived[2], lived[3], lived[4]),
        taken=(taken[0], taken[1], taken[2], taken[3], taken[4]),
        launches=launches + refusals,
        refusals=refusals,
    )
