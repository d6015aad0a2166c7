"""How long machines of each pool lived and how many the cloud took, counted in PostgreSQL.

A machine's life is cut at the ages between which the hazard is taken to be constant. Also here:
when pools were seen with and without machines, and what they usually cost. Not here: what follows
from it (`app.domain.availability.hazard_by_age`, `availability_observations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Numeric,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.sql.elements import ColumnElement

from app.domain.availability.availability_observations import AvailabilityObservations
from app.domain.availability.hazard_by_age import AGE_EDGES_SECONDS, Experience
from app.domain.lifecycle.instance import EndedBy
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.lifecycle.launch_errors import RefusalKind
from app.domain.market.offer import Market, Pool
from app.domain.spec.spec_document import SpecDocument
from app.domain.throughput.measured_run import GpuShape, MeasuredRun
from app.domain.throughput.same_work import work_digest
from app.storage.instances.same_work_runs import SAME_WORK
from app.storage.schema.instance_tables import instances, launches
from app.storage.schema.job_tables import jobs
from app.storage.schema.money_tables import prices
from app.storage.session.ready_statement import Ready
from app.storage.session.record_session import Repository

POOLS_MAX = 500
SIGHTINGS_MAX = 5_000
"""Machines, and launches, that are looked at: the newest."""

_row = instances.c
_TAKEN = (EndedBy.CLOUD_INTERRUPTION, EndedBy.CLOUD_CAPACITY)
_EDGES = tuple(literal(Decimal(seconds), Numeric) for seconds in AGE_EDGES_SECONDS)
_NO_TIME = literal(Decimal(0), Numeric)
_AGES = (_NO_TIME, *_EDGES)
_ENDS = (*_EDGES, None)


def _lived(which: ColumnElement[bool]) -> Ready:
    """(pool, machines, then seconds and interruptions of each age), by pool, of `which` machines
    that were launched `since`.
    """
    ended = func.coalesce(_row.ended_at, bindparam("now", type_=_row.ended_at.type))
    # As decimals, whose sum is one and the same: the last digits of floats would hang on the
    # order in which PostgreSQL comes to the rows, and that on its plan.
    lived: ColumnElement[Decimal] = cast(func.extract("epoch", ended - _row.launched_at), Numeric)
    taken = _row.ended_by == EndedBy.CLOUD_INTERRUPTION
    columns: list[ColumnElement[Any]] = []
    for begin, end in zip(_AGES, _ENDS, strict=True):
        most = lived if end is None else func.least(lived, end)
        columns.append(func.sum(func.greatest(_NO_TIME, most - begin)))
        inside = lived >= begin if end is None else (lived >= begin) & (lived < end)
        columns.append(func.count().filter(taken & inside))
    launched = (_row.launched_at.is_not(None), _row.launched_at >= bindparam("since"))
    return Ready(
        select(_row.pool, func.count(), *columns)
        .where(which, *launched)
        .group_by(_row.pool)
        .order_by(_row.pool)
    )


_IN_POOLS = _row.pool == any_(bindparam("these_pools", type_=ARRAY(Text)))
_OF_PROJECT = _row.job_id.in_(select(jobs.c.id).where(jobs.c.project_id == bindparam("of_project")))
_SPOT_OF_PROVIDER = (
    (_row.provider == bindparam("of_provider"))
    & (_row.market == Market.SPOT)
    & _row.pool.is_not(None)
)
# Built once: every promise that is evaluated asks, and building one takes milliseconds.
_LIVED_IN_POOLS = _lived(_IN_POOLS)
_LIVED_OF_PROJECT = _lived(_IN_POOLS & _OF_PROJECT)
_LIVED_OF_PROVIDER = _lived(_SPOT_OF_PROVIDER)
_REFUSED_POOLS = (
    select(func.jsonb_array_elements(launches.c.bids).op("->>")("pool").label("pool"))
    .where(launches.c.outcome == LaunchOutcome.REFUSED, launches.c.created_at >= bindparam("since"))
    .subquery()
)
_REFUSED = Ready(
    select(_REFUSED_POOLS.c.pool, func.count())
    .group_by(_REFUSED_POOLS.c.pool)
    .order_by(_REFUSED_POOLS.c.pool)
)


class ExperienceStatements(Repository):
    """Counts of machines and launches."""

    def of(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with these pools since then; pools never rented in are left out."""
        asked = sorted(set(pools))[:POOLS_MAX]
        if not asked:
            return {}
        refused: dict[str, int] = dict(self._session.rows(_REFUSED, {"since": since}))
        found = {
            pool: _experience(counts[0], refused.get(pool.key, 0), counts[1:])
            for pool, counts in self._lived(
                _LIVED_IN_POOLS, since, now, these_pools=[pool.key for pool in asked]
            )
        }
        for pool in asked:
            if pool not in found and pool.key in refused:
                found[pool] = _experience(0, refused[pool.key], (0.0,) * 10)
        return found

    def own_hours(
        self, pools: Sequence[Pool], project_id: UUID, since: datetime, now: datetime
    ) -> Mapping[Pool, float]:
        """For how many hours machines of the project's own jobs have run in these pools since
        then. What others rent is told to nobody.
        """
        asked = [pool.key for pool in sorted(set(pools))[:POOLS_MAX]]
        found = self._lived(_LIVED_OF_PROJECT, since, now, these_pools=asked, of_project=project_id)
        return {pool: _experience(counts[0], 0, counts[1:]).lived_hours for pool, counts in found}

    def of_provider(
        self, provider: str, since: datetime, now: datetime
    ) -> Mapping[Pool, Experience]:
        """Experience with all of a provider's spot pools that machines were launched in."""
        return {
            pool: _experience(counts[0], 0, counts[1:])
            for pool, counts in self._lived(_LIVED_OF_PROVIDER, since, now, of_provider=provider)
        }

    def observations(
        self, since: datetime, now: datetime
    ) -> Mapping[Pool, AvailabilityObservations]:
        """When spot pools had machines and when they lacked them, by all jobs; bounded."""
        had: dict[Pool, list[tuple[datetime, datetime]]] = {}
        lacked: dict[Pool, list[datetime]] = {}
        ended = or_(_row.ended_at.is_(None), _row.ended_at >= since)
        rows = self._session.execute(
            select(_row.pool, _row.launched_at, _row.ended_at, _row.ended_by, _row.noticed_at)
            .where(_row.market == Market.SPOT, _row.pool.is_not(None))
            .where(_row.launched_at.is_not(None), ended)
            .order_by(_row.launched_at.desc(), _row.id)
            .limit(SIGHTINGS_MAX)
        )
        for pool, launched_at, ended_at, ended_by, noticed_at in rows:
            until = ended_at or now
            had.setdefault(pool, []).append((launched_at, max(launched_at, until)))
            if ended_by in _TAKEN or noticed_at is not None:
                lacked.setdefault(pool, []).append(until)
        for key, at in self._session.execute(_refusals(since)):
            lacked.setdefault(Pool.parse(key), []).append(at)
        return {
            pool: AvailabilityObservations(tuple(had.get(pool, ())), tuple(lacked.get(pool, ())))
            for pool in sorted({*had, *lacked})
        }

    def usual_prices(
        self, pools: Sequence[Pool], since: datetime, now: datetime
    ) -> Mapping[Pool, int]:
        """Mean price over that time, micro-USD per hour; without pools whose price stood still."""
        later = func.lead(prices.c.at, 1, literal(now)).over(
            partition_by=prices.c.pool, order_by=prices.c.at
        )
        steps = (
            select(
                prices.c.pool,
                prices.c.microusd_per_hour,
                func.extract("epoch", later - prices.c.at).label("seconds"),
            )
            .where(prices.c.pool.in_(sorted(set(pools))[:POOLS_MAX]))
            .where(prices.c.at >= since, prices.c.at < now)
            .subquery()
        )
        mean = func.sum(steps.c.microusd_per_hour * steps.c.seconds) / func.sum(steps.c.seconds)
        rows = self._session.execute(
            select(steps.c.pool, mean).group_by(steps.c.pool).order_by(steps.c.pool)
        )
        return {pool: round(price) for pool, price in rows}

    def measured_runs(
        self, project_id: UUID, spec: SpecDocument, since: datetime
    ) -> Sequence[MeasuredRun]:
        """Ended attempts of a project's jobs that did the same work as the spec; the newest."""
        asked = {"of_work": work_digest(project_id, spec), "since": since}
        return [
            MeasuredRun(
                GpuShape(hardware["gpu_name"], hardware["gpu_memory_gb"], hardware["gpu_count"]),
                nodes,
                steps,
                seconds,
            )
            for hardware, nodes, steps, seconds in self._session.rows(SAME_WORK, asked)
        ]

    def _lived(
        self, statement: Ready, since: datetime, now: datetime, **which: object
    ) -> list[tuple[Pool, Sequence[Any]]]:
        """The rows of a statement of `_lived`, with their pools."""
        rows = self._session.rows(statement, {"since": since, "now": now, **which})
        return [(Pool.parse(row[0]), row[1:]) for row in rows]


def _refusals(since: datetime) -> Select[tuple[str, datetime]]:
    """(pool, instant) of launches that found no capacity in any of their pools."""
    pool = func.jsonb_array_elements(launches.c.bids).op("->>")("pool").label("pool")
    return (
        select(pool, launches.c.settled_at)
        .where(
            launches.c.market == Market.SPOT,
            launches.c.outcome == LaunchOutcome.REFUSED,
            launches.c.created_at >= since,
            launches.c.settled_at.is_not(None),
            launches.c.error.contains(RefusalKind.NO_CAPACITY.value),
        )
        .order_by(launches.c.settled_at.desc(), launches.c.id, pool)
        .limit(SIGHTINGS_MAX)
    )


def _experience(launches: int, refusals: int, counts: Sequence[float]) -> Experience:
    lived = [float(value) for value in counts[0::2]]
    taken = [int(value) for value in counts[1::2]]
    return Experience(
        lived_seconds=(lived[0], lived[1], lived[2], lived[3], lived[4]),
        taken=(taken[0], taken[1], taken[2], taken[3], taken[4]),
        launches=launches + refusals,
        refusals=refusals,
    )
