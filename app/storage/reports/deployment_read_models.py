"""Reports on what is rented and can be rented.

Not here: one job's reports (`job_read_models`), gauges (`deployment_facts`), or reports of money.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

from sqlalchemy import Engine, func, select, text

from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES
from app.domain.market.offer import Pool, Quote
from app.domain.units.errors import NotFound
from app.storage.reports.deployment_facts import DeploymentFacts, deployment_facts
from app.storage.reports.price_history_report import price_histories
from app.storage.schema import money_tables, tables
from app.storage.session.machine_names import machine_names

_INSTANCE_COLUMNS: Final = (
    "id", "job_id", "provider", "cloud", "market", "state", "origin", "pool",
    "provider_instance_id", "requested_at", "launched_at", "registered_at", "noticed_at",
    "notice_deadline_at", "unreachable_at", "release_ordered_at", "release_reason", "ended_at",
    "ended_by", "suspect", "billing_speed", "private_address", "cost_final_at",
)  # fmt: skip


class QuotedPoolRow(Quote):
    """A pool as it was quoted last; prices in micro-USD per machine and hour, instants aware.

    cool_until_at: until when it is left alone, for cool_reason; refusals: how often it refused
    since it last did not. placement_score: the cloud's own word, 1 to 10. preemption_rate: the
    share of its machines that were taken, as the cloud tells. None where nothing is known.
    """

    provider: str
    cool_until_at: datetime | None
    cool_reason: str | None
    refusals: int
    placement_score: float | None
    placement_scored_at: datetime | None
    preemption_rate: float | None
    preemption_rate_at: datetime | None


@dataclass(frozen=True)
class InstanceAddress:
    """Where an instance is: its provider, and the id there once it has started. And whose: the
    project of its job, and the key and person that submitted that.
    """

    provider: str
    provider_instance_id: str | None
    project_id: UUID
    owner_key_id: UUID | None
    owner_person_id: UUID | None


class DeploymentReports:
    """The part of `app.storage.reports.job_facts.JobReports` that is about no single job."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def instances(
        self, project_id: UUID, *, job_id: UUID | None, live_only: bool, limit: int
    ) -> list[dict[str, Any]]:
        """Machines of the project's jobs, newest first."""
        instances, jobs, pools = tables.instances, tables.jobs, money_tables.pools
        contacts = tables.contacts
        statement = (
            select(
                *(instances.c[name] for name in _INSTANCE_COLUMNS),
                jobs.c.name.label("job_name"),
                contacts.c.phase,
                contacts.c.answered_at,
                contacts.c.step,
                pools.c.price_microusd_per_hour.label("microusd_per_hour"),
            )
            .join(jobs, jobs.c.id == instances.c.job_id)
            .outerjoin(contacts, contacts.c.instance_id == instances.c.id)
            .outerjoin(pools, pools.c.pool == instances.c.pool)
            .where(jobs.c.project_id == project_id)
            .order_by(instances.c.id.desc())
            .limit(limit)
        )
        if job_id is not None:
            statement = statement.where(instances.c.job_id == job_id)
        if live_only:
            statement = statement.where(
                text(tables.one_of("instances.state", LIVE_INSTANCE_STATES))
            )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(statement).mappings()]
            names = machine_names(connection, {row["job_id"] for row in rows})
        return [{**row, "name": names.get(row["id"])} for row in rows]

    def instance_address(self, project_id: UUID, instance_id: UUID) -> InstanceAddress:
        """Where to find one of the project's instances; raises NotFound."""
        instances, jobs = tables.instances, tables.jobs
        statement = (
            select(
                instances.c.provider,
                instances.c.provider_instance_id,
                jobs.c.project_id,
                jobs.c.owner_key_id,
                jobs.c.owner_person_id,
            )
            .join(jobs, jobs.c.id == instances.c.job_id)
            .where(instances.c.id == instance_id, jobs.c.project_id == project_id)
        )
        with self._engine.connect() as connection:
            found = connection.execute(statement).one_or_none()
        if found is None:
            raise NotFound(f"There is no instance {instance_id} in this project.")
        return InstanceAddress(*found)

    def offers(self, gpu: str | None) -> list[QuotedPoolRow]:
        """Pools with their price now and their score, cheapest first; `gpu`: a GPU's name."""
        pools, pasts = money_tables.pools, money_tables.pool_pasts
        statement = (
            select(
                pools,
                pasts.c.score.label("placement_score"),
                pasts.c.scored_at.label("placement_scored_at"),
                pasts.c.preemptions[-1]["rate"].as_float().label("preemption_rate"),
                pasts.c.asked_at.label("preemption_rate_at"),
            )
            .outerjoin(pasts, pasts.c.pool == pools.c.pool)
            .order_by(pools.c.price_microusd_per_hour, pools.c.pool)
        )
        if gpu is not None:
            statement = statement.where(
                func.upper(pools.c.hardware["gpu_name"].astext) == gpu.upper()
            )
        with self._engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(statement).mappings()]
        return cast(list[QuotedPoolRow], rows)

    def price_histories(
        self, from_at: datetime, to_at: datetime, *, pool: Pool | None, gpu: str | None
    ) -> list[dict[str, Any]]:
        """Recorded prices of at most twenty pools, cheapest now first."""
        return price_histories(self._engine, from_at, to_at, pool=pool, gpu=gpu)

    def deployment(self, now: datetime) -> DeploymentFacts:
        """Gauges for monitoring."""
        with self._engine.connect() as connection:
            return deployment_facts(connection, now)

    def schema_revision(self) -> str | None:
        """Which migration the database is at; None before the first."""
        with self._engine.connect() as connection:
            if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
                return None
            found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
            return found
