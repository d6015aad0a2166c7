"""The figures of a whole deployment that its monitoring reads, in a few statements.

Not here: how they are named for Prometheus (`app.api.health.monitoring`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, func, or_, select, text

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES, TERMINAL_JOB_STATES
from app.storage.schema import money_tables, tables
from app.storage.schema.access_tables import projects

_COUNTED_MAX: Final = 100_000
"""No gauge counts further, so that reading them costs the same on any day."""


@dataclass(frozen=True)
class ProjectSpend:
    """What a project's machines cost, as a machine's list of prices and its bookings tell.

    microusd_per_hour: of the machines that are billed now. today_microusd: booked for use
    since 00:00 UTC.
    """

    microusd_per_hour: int = 0
    today_microusd: int = 0


@dataclass(frozen=True)
class DeploymentFacts:
    """Gauges for monitoring. Counts stop at a bound; ages are in seconds.

    oldest_report_seconds: since the agent that was heard least recently was heard, of machines that
    have registered and are not ordered to end. oldest_wait_seconds: how long the job that waits
    longest has had no attempt. oldest_launch_seconds: since the oldest open launch was begun.
    books_differences: machines and days whose entries and sums differ. spend_by_project: by the
    project's name.
    """

    jobs_by_state: Mapping[str, int]
    queue_depth: int
    oldest_wait_seconds: float
    instances_by_state: Mapping[str, int]
    unreachable_instances: int
    oldest_report_seconds: float
    open_launches: int
    oldest_launch_seconds: float
    controller_age_seconds: Mapping[str, float]
    books_differences: int
    spend_by_project: Mapping[str, ProjectSpend]


def deployment_facts(connection: Connection, now: datetime) -> DeploymentFacts:
    """All of them as of now."""
    by_state = _jobs_by_state(connection)
    launches, runs = tables.launches, tables.controller_runs
    some = select(text("1")).select_from(money_tables.books_differences).limit(_COUNTED_MAX)
    differences = select(func.count()).select_from(some.subquery())
    open_launches, launch_at = connection.execute(
        select(func.count(), func.min(launches.c.created_at)).where(
            launches.c.next_call_at.is_not(None)
        )
    ).one()
    unreachable, heard_at = _agents(connection)
    return DeploymentFacts(
        jobs_by_state=by_state,
        queue_depth=sum(by_state.get(state, 0) for state in CLAIMABLE_JOB_STATES),
        oldest_wait_seconds=_age(_waits_since(connection), now),
        instances_by_state=_instances_by_state(connection),
        unreachable_instances=unreachable,
        oldest_report_seconds=_age(heard_at, now),
        open_launches=open_launches,
        oldest_launch_seconds=_age(launch_at, now),
        controller_age_seconds={
            row.controller: _age(row.ran_at, now)
            for row in connection.execute(select(runs.c.controller, runs.c.ran_at))
        },
        books_differences=connection.scalar(differences) or 0,
        spend_by_project=_spend_by_project(connection, now),
    )


def _jobs_by_state(connection: Connection) -> dict[str, int]:
    live = select(tables.jobs.c.state).where(
        text(f"NOT ({tables.one_of('state', TERMINAL_JOB_STATES)})")
    )
    some = live.limit(_COUNTED_MAX).subquery()
    counted = select(some.c.state, func.count()).group_by(some.c.state)
    return {str(state): count for state, count in connection.execute(counted)}


def _waits_since(connection: Connection) -> datetime | None:
    """The earliest end of an attempt, or submission without one, of the jobs that wait now."""
    jobs, attempts = tables.jobs, tables.attempts
    ended_at = (
        select(func.max(attempts.c.ended_at))
        .where(attempts.c.job_id == jobs.c.id)
        .scalar_subquery()
    )
    waiting = (
        select(func.coalesce(ended_at, jobs.c.submitted_at).label("since"))
        .where(or_(*(jobs.c.state == state for state in sorted(CLAIMABLE_JOB_STATES))))
        .limit(_COUNTED_MAX)
        .subquery()
    )
    since: datetime | None = connection.scalar(select(func.min(waiting.c.since)))
    return since


def _instances_by_state(connection: Connection) -> dict[str, int]:
    up = select(tables.instances.c.state).where(text(tables.one_of("state", LIVE_INSTANCE_STATES)))
    some = up.limit(_COUNTED_MAX).subquery()
    counted = select(some.c.state, func.count()).group_by(some.c.state)
    return {str(state): count for state, count in connection.execute(counted)}


def _agents(connection: Connection) -> tuple[int, datetime | None]:
    """How many machines cannot be reached; when the one heard least recently was heard."""
    instances, contacts = tables.instances, tables.contacts
    unreachable, heard_at = connection.execute(
        select(
            func.count().filter(instances.c.unreachable_at.is_not(None)),
            func.min(contacts.c.answered_at).filter(instances.c.release_ordered_at.is_(None)),
        )
        .outerjoin_from(instances, contacts, contacts.c.instance_id == instances.c.id)
        .where(text(tables.one_of("instances.state", LIVE_INSTANCE_STATES)))
    ).one()
    return unreachable, heard_at


def _spend_by_project(connection: Connection, now: datetime) -> dict[str, ProjectSpend]:
    instances, jobs, pools = tables.instances, tables.jobs, money_tables.pools
    rollups = money_tables.cost_rollups
    rates = (
        select(jobs.c.project_id, func.sum(pools.c.price_microusd_per_hour).label("rate"))
        .join_from(instances, jobs, jobs.c.id == instances.c.job_id)
        .join(pools, pools.c.pool == instances.c.pool)
        .where(
            text(tables.one_of("instances.state", LIVE_INSTANCE_STATES)),
            instances.c.launched_at.is_not(None),
            instances.c.ended_at.is_(None),
        )
        .group_by(jobs.c.project_id)
        .subquery()
    )
    # One project and day each, as the index has them.
    today = (
        select(func.sum(rollups.c.amount_microusd))
        .where(rollups.c.project_id == projects.c.id, rollups.c.day == now.date())
        .scalar_subquery()
    )
    found = connection.execute(
        select(projects.c.name, rates.c.rate, today).outerjoin_from(
            projects, rates, rates.c.project_id == projects.c.id
        )
    )
    return {name: ProjectSpend(int(rate or 0), int(amount or 0)) for name, rate, amount in found}


def _age(at: datetime | None, now: datetime) -> float:
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())
