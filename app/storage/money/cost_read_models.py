"""Cost reports from PostgreSQL, each from one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from uuid import UUID

from sqlalchemy import Connection, Engine

from app.storage.money.cost_figures import (
    CostGroup,
    CostLine,
    Invoices,
    JobCost,
    PeriodCosts,
    Verification,
)
from app.storage.money.cost_lines import cost_lines
from app.storage.money.cost_verification import VerificationScope, verify
from app.storage.money.job_cost_report import job_cost
from app.storage.money.period_cost_report import ReportPeriod, period_costs


class CostReports:
    """Reports from what is booked; each answer is one consistent snapshot."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def job_cost(self, job_id: UUID, invoices: Invoices | None = None) -> JobCost | None:
        """A job's cost; None for an unknown job. `invoices` can make it `reconciled`."""
        with self._snapshot() as connection:
            return job_cost(connection, job_id, invoices)

    def period_costs(
        self,
        from_day: date,
        to_day: date,
        group: CostGroup = CostGroup.JOB,
        *,
        label: str | None = None,
        project_id: UUID | None = None,
    ) -> PeriodCosts:
        """Costs of whole UTC days, both included. Raises InvalidValue for a reversed period or a
        missing label.
        """
        with self._snapshot() as connection:
            return period_costs(
                connection, ReportPeriod(from_day, to_day, project_id), group, label
            )

    def cost_lines(
        self, from_day: date, to_day: date, *, project_id: UUID | None = None
    ) -> list[CostLine]:
        """The same money line by line, by day, project, job and machine: the sum is that of
        `period_costs`. Raises InvalidValue for a reversed period, or too many lines.
        """
        with self._snapshot() as connection:
            return cost_lines(connection, ReportPeriod(from_day, to_day, project_id))

    def verify(
        self,
        invoices: Invoices | None = None,
        *,
        job_id: UUID | None = None,
        project_id: UUID | None = None,
    ) -> Verification:
        """Recompute every machine's bill from raw facts and prices, and compare all sums: of a
        job, else of a project, else of the deployment, machines that no row knows included.
        """
        with self._snapshot() as connection:
            return verify(connection, invoices, VerificationScope(job_id, project_id))

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        """A transaction that sees one instant and writes nothing."""
        with self._engine.connect().execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        ) as connection:
            yield connection
