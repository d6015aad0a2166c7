"""What the web pages read: sessions, the list of jobs, and what machines did over time.

Not here: one job's facts (`job_read_models`), its money (`job_cost_report`), or how any of it is
drawn (`app.web`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy import Connection, Engine, func, select

from app.domain.billing.machine_rating import RatedMachine
from app.domain.billing.machine_timeline import AttemptReach, PhaseStart, machine_timeline
from app.domain.billing.phase_timeline import PhaseSpan, disjoint
from app.domain.lifecycle.entities import Attempt, Instance, Job
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Pool
from app.domain.market.price_book import PriceSegment, UnknownPrice
from app.domain.units.errors import NotFound
from app.storage.money.cost_rows import attempt_reach, rate_machines, read_attempts
from app.storage.reports.job_facts import JobFilter
from app.storage.reports.job_list_statement import list_statement
from app.storage.reports.job_search import (
    ChosenJob,
    FoundGroup,
    FoundJob,
    FoundJobs,
    JobSearch,
    ProjectNow,
)
from app.storage.reports.job_search_statement import (
    chosen_by_id,
    chosen_statement,
    search_statement,
)
from app.storage.reports.listed_jobs import listed_jobs
from app.storage.schema import money_tables, tables
from app.storage.session.machine_names import (
    machine_names,
    machine_of,
    machines_by_actor,
)
from app.storage.session.read_records import read_records, select_records
from trainer.protocol.agent_report import MachinePhase

LANES_MAX = 24


@dataclass(frozen=True)
class MachineLane:
    """One machine of a job over time. `spans` are disjoint; `prices` is empty when none is known.

    label: m1, m2, … among the job's machines that ran, as in reports of cost; "" before it ran.
    """

    instance: Instance
    label: str
    spans: tuple[PhaseSpan, ...]
    prices: tuple[PriceSegment, ...]


@dataclass(frozen=True)
class JobTimeline:
    """What a job's machines did, oldest first, at most the `LANES_MAX` newest of them.

    earlier_machines: how many older ones are left out.
    """

    attempts: tuple[Attempt, ...]
    lanes: tuple[MachineLane, ...]
    earlier_machines: int


@dataclass(frozen=True)
class PriceSample:
    """From `at` on, a machine of the pool costs this much, until the next point."""

    at: datetime
    microusd_per_hour: int


_PHASES_MAX: Final = 20_000
_PRICES_MAX: Final = 20_000
_KINDS_MAX: Final = 6
"""Kinds of points, by the names in them, that are thinned each by itself."""


class PageReports:
    """Short reads; each answer is one consistent snapshot."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def deployment_secret(self) -> str:
        """The secret that sessions are signed with; raises NotFound before the first use."""
        with self._engine.connect() as connection:
            secret: str | None = connection.scalar(select(tables.deployment.c.secret))
        if secret is None:
            raise NotFound("This deployment has no secret yet; run `lowtide migrate`.")
        return secret

    def list_jobs(self, wanted: JobFilter, now: datetime) -> Mapping[str, Any]:
        """A page of jobs as of now, newest first, as the API lists them: `items` and `next`."""
        statement, parameters = list_statement(wanted, now)
        with self._engine.connect() as connection:
            text = connection.exec_driver_sql(statement, parameters).scalar_one()
        return listed_jobs(text, now)

    def search_jobs(self, search: JobSearch, now: datetime) -> FoundJobs:
        """A page of the rows that a search finds, as of now."""
        with self._engine.connect() as connection:
            text = connection.exec_driver_sql(*search_statement(search)).scalar_one()
            found = orjson.loads(text)
            ids = tuple(UUID(row["job_id"]) for row in found["rows"] if row["job_id"] is not None)
            listed = list_statement(JobFilter(search.project_id, len(ids), ids=ids), now)
            items = listed_jobs(connection.exec_driver_sql(*listed).scalar_one(), now)["items"]
        return _found_jobs(found, {item["id"]: item for item in items})

    def chosen_jobs(
        self, search: JobSearch, prefixes: Collection[str], *, everything: bool, limit: int
    ) -> list[ChosenJob]:
        """Jobs that a search finds: all of them, or those whose name has one of the prefixes."""
        return self._chosen(*chosen_statement(search, prefixes, everything, limit))

    def jobs_by_id(self, project_id: UUID, ids: Collection[UUID]) -> list[ChosenJob]:
        """The project's jobs among these ids, newest first."""
        return self._chosen(*chosen_by_id(project_id, ids))

    def _chosen(self, statement: str, parameters: dict[str, Any]) -> list[ChosenJob]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(statement, parameters).all()
        return [
            ChosenJob(job_id, name, JobState(state), spent) for job_id, name, state, spent in rows
        ]

    def timeline(self, job_id: UUID, now: datetime) -> JobTimeline:
        """What the job's machines have done until now."""
        with self._engine.connect() as connection:
            instances = _instances(connection, job_id)
            shown = instances[-LANES_MAX:]
            attempts = read_attempts(connection, job_id)
            rated, _ = rate_machines(connection, shown)
            phases = _phases(connection, job_id, [one.id for one in shown])
            labels = machine_names(connection, [job_id])
            wanted = select_records(Job).where(tables.jobs.c.id == job_id)
            (job,) = read_records(connection, Job, wanted)
            reach = attempt_reach(connection, job, attempts, [one.id for one in shown])
            lanes = [
                MachineLane(
                    one,
                    labels.get(one.id, ""),
                    _spans(one, phases[one.id], now, reach),
                    _prices(rated.get(one.id), one.ended_at or now),
                )
                for one in shown
            ]
            return JobTimeline(tuple(attempts), tuple(lanes), len(instances) - len(shown))

    def pool_prices(
        self, pools: Collection[Pool], since: datetime
    ) -> dict[Pool, tuple[PriceSample, ...]]:
        """Recorded prices by time, from what held at `since` on; pools without any are left out."""
        table, before = money_tables.prices, money_tables.prices.alias("before")
        held_from = (
            select(func.max(before.c.at))
            .where(before.c.pool == table.c.pool, before.c.at <= since)
            .scalar_subquery()
        )
        statement = (
            select(table.c.pool, table.c.at, table.c.microusd_per_hour)
            .where(table.c.pool.in_(pools), table.c.at >= func.coalesce(held_from, since))
            .order_by(table.c.at.desc())
            .limit(_PRICES_MAX)
        )
        found: dict[Pool, list[PriceSample]] = defaultdict(list)
        with self._engine.connect() as connection:
            for pool, at, price in reversed(connection.execute(statement).all()):
                found[pool].append(PriceSample(at, price))
        return {pool: tuple(points) for pool, points in found.items()}

    def recent_events(self, job_id: UUID, limit: int) -> list[dict[str, Any]]:
        """The end of the history, newest first; `machine`: the one that an entry is about."""
        table = tables.events
        statement = (
            select(table).where(table.c.job_id == job_id).order_by(table.c.seq.desc()).limit(limit)
        )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(statement).mappings()]
            names = machines_by_actor(connection, job_id)
        return [{**row, "machine": machine_of(row, names)} for row in rows]

    def machine_names(self, job_id: UUID) -> dict[UUID, str]:
        """What people call the job's machines that the cloud has started, by instance id."""
        with self._engine.connect() as connection:
            return machine_names(connection, [job_id])

    def recent_metrics(self, job_id: UUID, points_max: int) -> list[dict[str, Any]]:
        """Points in order of (fence, step), thinned evenly where there are more.

        Points with the same names are thinned among themselves, so that what is reported seldom, as
        by an evaluation, keeps its curve from the beginning on. At most `points_max` and the newest
        of each such kind, of which the rarest are one.
        """
        table = tables.metric_points
        name = func.jsonb_object_keys(table.c.metrics).table_valued("name").alias("named")
        names = select(
            func.coalesce(func.hashtextextended(func.string_agg(name.c.name, ","), 0), 0)
        ).scalar_subquery()
        keys = (
            select(table.c.fence, table.c.step, names.label("names"))
            .where(table.c.job_id == job_id)
            .cte("keys")
        )
        by_size = func.row_number().over(order_by=(func.count().desc(), keys.c.names))
        kinds = (
            select(keys.c.names, func.least(by_size, _KINDS_MAX).label("kind"))
            .group_by(keys.c.names)
            .subquery()
        )
        place = func.row_number().over(
            partition_by=kinds.c.kind, order_by=(keys.c.fence, keys.c.step)
        )
        total = func.count().over(partition_by=kinds.c.kind)
        points = (
            select(keys.c.fence, keys.c.step, place.label("place"), total.label("total"))
            .join_from(keys, kinds, kinds.c.names == keys.c.names)
            .subquery()
        )
        every = (points.c.total + points_max - 1) // points_max
        kept = (points.c.place - 1) % every == 0
        same = (table.c.fence == points.c.fence) & (table.c.step == points.c.step)
        # Only keys are sorted: a page asks every second, and rows with their metrics are wide.
        statement = (
            select(table.c.fence, table.c.step, table.c.at, table.c.metrics)
            .join_from(points, table, same & (table.c.job_id == job_id))
            .where(kept | (points.c.place == points.c.total))
            .order_by(table.c.fence, table.c.step)
        )
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]


def _found_jobs(found: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]) -> FoundJobs:
    """facts: of the jobs on the page, by id; one that has gone since has no row."""
    return FoundJobs(
        rows=tuple(
            FoundJob(facts[row["job_id"]]) if row["prefix"] is None else _found_group(row)
            for row in found["rows"]
            if row["prefix"] is not None or row["job_id"] in facts
        ),
        rows_total=found["rows_total"],
        jobs_total=found["jobs_total"],
        by_state=_by_state(found["by_state"]),
        considered=found["considered"],
        is_cut=found["is_cut"],
        now=ProjectNow(
            microusd_per_hour=found["microusd_per_hour"],
            spent_today_microusd=found["spent_today"],
            running=found["running"],
            queued=found["queued"],
            failed_today=found["failed_today"],
        ),
    )


def _found_group(row: Mapping[str, Any]) -> FoundGroup:
    return FoundGroup(
        prefix=row["prefix"],
        by_state=_by_state(row["by_state"]),
        spent_microusd=row["spent"],
        microusd_per_hour=row["rate"],
        newest_at=datetime.fromisoformat(row["newest_at"]),
        compared_microusd=row["compared"],
    )


def _by_state(counts: Mapping[str, int]) -> dict[JobState, int]:
    """In the order of the states."""
    return {state: counts[state] for state in JobState if state in counts}


def _instances(connection: Connection, job_id: UUID) -> list[Instance]:
    table = tables.instances
    statement = (
        select_records(Instance)
        .where(table.c.job_id == job_id)
        .order_by(table.c.requested_at, table.c.id)
    )
    return read_records(connection, Instance, statement)


def _phases(
    connection: Connection, job_id: UUID, instance_ids: Sequence[UUID]
) -> dict[UUID, list[PhaseStart]]:
    """Starts of phases by machine, in order; the newest of them where there are very many."""
    table = tables.phases
    statement = (
        select(table)
        .where(table.c.instance_id.in_(instance_ids), table.c.job_id == job_id)
        .order_by(table.c.from_at.desc(), table.c.session_id.desc(), table.c.fact_no.desc())
        .limit(_PHASES_MAX)
    )
    found: dict[UUID, list[PhaseStart]] = defaultdict(list)
    for row in reversed(connection.execute(statement).all()):
        start = PhaseStart(MachinePhase(row.phase), row.from_at, row.fence, row.step)
        found[row.instance_id].append(start)
    return found


def _spans(
    instance: Instance,
    starts: Sequence[PhaseStart],
    now: datetime,
    reach: Mapping[int, AttemptReach],
) -> tuple[PhaseSpan, ...]:
    if instance.launched_at is None:
        return ()
    until = max(instance.launched_at, instance.ended_at or now)
    return disjoint(machine_timeline(starts, instance.launched_at, until, reach))


def _prices(machine: RatedMachine | None, until: datetime) -> tuple[PriceSegment, ...]:
    try:
        return () if machine is None else machine.segments(until)
    except UnknownPrice:
        return ()
