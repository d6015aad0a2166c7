"""Rows for benchmarks: a project, offers, jobs that wait in the queue, and a long past.

The past is written by the database itself, without checking references, for speed. Not here: what
is measured on these rows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from sqlalchemy import Engine, insert, text

from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.spec.job_spec import parse_spec
from app.orchestration.frame.runtime import Runtime
from app.orchestration.queue.submit_job import submit_job
from app.storage.schema import tables
from tests.bench.bench_environment import driver_url
from tests.support.api.people_api import make_project

SPEC: dict[str, Any] = {
    "trainer": {"model": "mlp", "data": "digits", "steps": 100},
    "resources": {"gpu": "V100"},
    "budget_usd": 5,
}
_ACTOR = Actor(ActorKind.PERSON, "bench")
_ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-2a", "us-west-2a", "us-west-2b")
_ON_DEMAND_MICROUSD = 3_060_000


def make_deployment(engine: Engine) -> UUID:
    """The rows of a first use: deployment, project and its budget without a cap."""
    project_id = make_project(engine, "bench")
    with engine.begin() as connection:
        connection.execute(
            insert(tables.deployment).values(id=1, deployment_id=uuid4(), secret="s" * 32)
        )
        connection.execute(
            insert(tables.budgets).values(
                id=uuid4(),
                project_id=project_id,
                job_id=None,
                cap_microusd=None,
                spent_microusd=0,
                reserved_microusd=0,
            )
        )
    return project_id


def store_offers(runtime: Runtime) -> int:
    """Spot and on-demand offers in some zones; how many there are."""
    now = datetime.now(UTC)
    offers = [
        Offer(
            pool=Pool("local", zone[:-1], zone, "p3.2xlarge", market),
            hardware=Hardware("V100", 1, 16, 8, 61),
            price_microusd_per_hour=_ON_DEMAND_MICROUSD
            if market is Market.ON_DEMAND
            else 900_000 + 10_000 * number,
            on_demand_microusd_per_hour=_ON_DEMAND_MICROUSD,
            cloud="ec2",
            quoted_at=now,
            price_source="bench",
        )
        for number, zone in enumerate(_ZONES)
        for market in Market
    ]
    with runtime.begin() as uow:
        uow.offers.record(offers, [], now)
    return len(offers)


def queue_jobs(runtime: Runtime, project_id: UUID, count: int) -> None:
    """Submit so many jobs, as the api would, in one transaction."""
    spec = parse_spec(SPEC)
    with runtime.begin() as uow:
        for _ in range(count):
            submit_job(uow, runtime, project_id, spec, _ACTOR)


def add_finished_jobs(url: str, project_id: UUID, count: int) -> None:
    """So many ended jobs with their budgets, copied from one that was submitted and waits.

    url: the database's SQLAlchemy URL.
    """
    with psycopg.connect(driver_url(url), autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET statement_timeout = 0")
        row = connection.execute("SELECT id, budget_id FROM jobs LIMIT 1").fetchone()
        if row is None:
            raise RuntimeError("there is no job to copy")
        connection.execute(
            # Ids in rising order: random ones would take the indexes twice as long.
            "CREATE TEMP TABLE past AS SELECT uuidv7() AS job_id, uuidv7() AS budget_id, n "
            "FROM generate_series(1, %s) AS n",
            (count,),
        )
        connection.execute(_COPY_JOBS, {"id": row[0]})
        connection.execute(
            "INSERT INTO budgets (id, project_id, job_id, cap_microusd, spent_microusd, "
            "reserved_microusd) SELECT budget_id, %s, job_id, 5000000, 1234567, 0 FROM past",
            (project_id,),
        )
        connection.execute("ANALYZE jobs")
        connection.execute("ANALYZE budgets")


def analyze(engine: Engine) -> None:
    """Let the planner know the tables as they are."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


_COPIED = [
    column.name
    for column in tables.jobs.columns
    if column.name
    not in ("id", "budget_id", "name", "state", "ended_at", "cost_final_at", "submitted_at")
]
_COPY_JOBS = f"""
INSERT INTO jobs (id, budget_id, name, state, ended_at, cost_final_at, submitted_at,
    {", ".join(_COPIED)})
SELECT past.job_id, past.budget_id, 'past-' || lpad(past.n::text, 9, '0'), 'succeeded',
    jobs.submitted_at - past.n * interval '1 s', jobs.submitted_at - past.n * interval '1 s',
    jobs.submitted_at - past.n * interval '2 s',
    {", ".join(f"jobs.{name}" for name in _COPIED)}
FROM past, jobs WHERE jobs.id = %(id)s
"""
