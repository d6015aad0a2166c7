"""A deployment's money in a real database, told step by step under a clock that a test owns.

Here: projects, jobs, machines and prices as rows, and the controllers of money run on them. Not
here: clouds, agents, or how jobs come to have machines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, insert, select

from app.adapters.seeded_draws import seeded_draws
from app.domain.launch_limits.contract_prices import NO_CONTRACT
from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import (
    Assignment,
    Attempt,
    AttemptMember,
    Budget,
    Instance,
    Job,
    Launch,
)
from app.domain.lifecycle.instance import EndedBy, InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.spec.spec_document import SpecDocument
from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.orchestration.frame.failing_work import FailingWork
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.money.close_job_costs import CloseJobCosts
from app.orchestration.money.enforce_budgets import EnforceBudgets
from app.ports.price_source import PriceChange
from app.simulation.engine.serial_effects import SerialEffects
from app.storage.money.cost_read_models import CostReports
from app.storage.schema import tables
from app.storage.schema.money_tables import cost_rollups, ledger_entries
from app.storage.unit_of_work import PostgresUnitOfWorkFactory, UnitOfWork
from tests.support.servers.table_rows import add_row, change_row, fetch
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.presence import present

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PRICE = 3_600_000
"""1,000 micro-dollars a second."""
POOL = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
ON_DEMAND = replace(POOL, market=Market.ON_DEMAND)
V100 = Hardware("V100", 1, 16, 8, 61)
ON_DEMAND_PRICE = 10_800_000
LIMITS = Limits(
    accrual_seconds=60,
    price_refresh_seconds=60,
    cost_settle_seconds=5,
    drain_seconds=90,
    describe_seconds=30,
)


class CountingEntropy:
    """Ids and tokens in a row; two threads never get the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def _next(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def new_id(self) -> UUID:
        return UUID(int=self._next())

    def new_token(self) -> str:
        return f"token-{self._next()}"

    def uniform(self) -> float:
        return 0.5

    def replayable(self, seed: int) -> Callable[[], float]:
        return seeded_draws(seed)


class RecordedWakeups:
    """Remembers which controllers were rung."""

    def __init__(self) -> None:
        self.rung: list[str] = []

    def notify(self, controllers: Iterable[str]) -> None:
        self.rung += controllers


class MoneyStory:
    """Rows and time; every method is one committed step."""

    def __init__(self, engine: Engine, limits: Limits = LIMITS) -> None:
        self.engine = engine
        self.time = START
        self.entropy = CountingEntropy()
        self.wakeups = RecordedWakeups()
        self.begin = PostgresUnitOfWorkFactory(engine, self.wakeups, self.now)
        self.runtime = self.make_runtime(limits)
        self.accruing = AccrueCosts(self.runtime)
        self.enforcing = EnforceBudgets(self.runtime)
        self.closing = CloseJobCosts(self.runtime)
        add_row(engine, tables.deployment, id=1, deployment_id=UUID(int=1), secret="s" * 32)

    @property
    def reports(self) -> CostReports:
        """What the deployment tells of its costs."""
        return CostReports(self.engine)

    def make_runtime(self, limits: Limits, price_sources: dict[str, Any] | None = None) -> Runtime:
        ports: dict[str, Any] = {
            "begin": self.begin,
            "clock": self,
            "entropy": self.entropy,
            "wakeups": self.wakeups,
            "effects": SerialEffects(),
            "price_sources": price_sources or {},
            "limits": limits,
            "failing": FailingWork(),
            "contract": NO_CONTRACT,
        }
        # Money touches no other port; using one here is an error, not a silent success.
        absent: dict[str, Any] = {port.name: None for port in fields(Runtime)}
        return Runtime(**{**absent, **ports})

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def after(self, seconds: float) -> datetime:
        return START + timedelta(seconds=seconds)

    def go_to(self, seconds: float) -> None:
        """The clock stands at so many seconds after the start."""
        self.time = self.after(seconds)

    def run(self, *controllers: AnyController) -> int:
        return run_until_idle(self.runtime, controllers)

    def accrue(self, seconds: float) -> None:
        """Everything that is due at that time gets booked, and nothing stays due."""
        self.go_to(seconds)
        assert self.run(self.accruing) < 100, "accruing never comes to rest"
        assert run_controller(self.runtime, self.accruing) == 0

    # --- rows ---------------------------------------------------------------------------------

    def add(self, *records: object) -> None:
        with self.begin() as uow:
            for record in records:
                uow.session.add(record)
                uow.flush()

    def project(self, name: str = "alpha", cap: int | None = None) -> UUID:
        project_id = self.entropy.new_id()
        with self.begin() as uow:
            uow.session.execute(
                insert(tables.projects).values(id=project_id, name=name, created_at=START)
            )
            if cap is not None:
                uow.session.add(Budget(self.entropy.new_id(), project_id, None, cap))
        return project_id

    def job(
        self,
        project_id: UUID,
        name: str = "digits",
        *,
        cap: int | None = None,
        state: JobState = JobState.RUNNING,
        labels: dict[str, str] | None = None,
    ) -> Job:
        job_id, budget_id = self.entropy.new_id(), self.entropy.new_id()
        spec: SpecDocument = {
            "run": "python train.py",
            "resources": {"gpu": ["V100:1"]},
            "labels": labels or {},
            "estimate": {"hours": 1, "gpu": "V100:1"},
        }
        job = Job(
            id=job_id,
            project_id=project_id,
            name=name,
            spec=spec,
            spec_digest="d",
            state=state,
            priority=0,
            node_count=1,
            submitted_at=START,
            updated_at=START,
            queue_rank_at=START,
            capacity_key="k",
            budget_id=budget_id,
        )
        self.add(Budget(budget_id, project_id, job_id, cap), job)
        return job

    def attempt(self, job: Job, fence: int = 1, **fields: Any) -> Attempt:
        fields = {"state": AttemptState.RUNNING, "node_count": 1, **fields}
        attempt = Attempt(
            id=self.entropy.new_id(),
            job_id=job.id,
            fence=fence,
            created_at=START,
            updated_at=START,
            form_until_at=START,
            **fields,
        )
        self.add(attempt)
        return attempt

    def phases(
        self, machine: Instance, job: Job, *told: tuple[float, str, int | None, int | None]
    ) -> None:
        """What the machine's agent told: (seconds, phase, fence, step)."""
        for number, (seconds, phase, fence, step) in enumerate(told, 1):
            add_row(
                self.engine, tables.phases, instance_id=machine.id, session_id="s", job_id=job.id,
                fact_no=number, phase=phase, from_at=self.after(seconds), fence=fence, step=step,
            )  # fmt: skip

    def launch(self, job: Job, price: int = PRICE) -> Launch:
        token = self.entropy.new_token()
        launch = Launch(
            id=self.entropy.new_id(),
            job_id=job.id,
            provider="local",
            client_token=token,
            count=1,
            min_count=1,
            market=Market.SPOT,
            bids=[
                {
                    "pool": POOL.key,
                    "price_microusd_per_hour": price,
                    "max_price_microusd_per_hour": price,
                }
            ],
            params_digest="d",
            purpose="gang",
            outcome=LaunchOutcome.PENDING,
            created_at=START,
            token_hash=token,
            token_expires_at=START,
        )
        self.add(launch)
        return launch

    def machine(
        self,
        job: Job | None,
        launched: float | None = 0,
        *,
        attempt: Attempt | None = None,
        pool: Pool | None = POOL,
        **fields: Any,
    ) -> Instance:
        """A machine that the cloud started then; None: it was only asked for."""
        machine_id = self.entropy.new_id()
        launched_at = None if launched is None else self.after(launched)
        fields = {
            "state": InstanceState.REQUESTED if launched is None else InstanceState.REGISTERED,
            "origin": "launch",
            "cloud": None if pool is None else "ec2",
            "provider_instance_id": f"i-{machine_id.int}",
            "launched_source": "provider_record",
            "on_demand_microusd_per_hour": ON_DEMAND_PRICE,
            "launch_id": None,
            **fields,
        }
        machine = Instance(
            id=machine_id,
            job_id=None if job is None else job.id,
            provider="local",
            market=Market.SPOT,
            requested_at=launched_at or self.time,
            updated_at=self.time,
            pool=pool,
            launched_at=launched_at,
            **fields,
        )
        self.add(machine)
        if launched_at is not None:
            self.assign(machine, job, attempt, launched_at)
        if attempt is not None:
            self.add(AttemptMember(attempt.id, machine_id, 0))
        return machine

    def assign(
        self, machine: Instance, job: Job | None, attempt: Attempt | None, at: datetime
    ) -> Assignment:
        """From then on the machine works for this; what it worked for before ends there."""
        span = Assignment(
            self.entropy.new_id(),
            machine.id,
            None if job is None else job.id,
            None if attempt is None else attempt.id,
            at,
        )
        with self.begin() as uow:
            for earlier in uow.instances.assignments(machine.id):
                earlier.to_at = earlier.to_at or at
            uow.instances.add_assignment(span)
        return span

    def end(
        self, machine: Instance, ended: float, ended_by: EndedBy = EndedBy.US, *, said: str = ""
    ) -> None:
        """The cloud's word that the machine ended then."""
        at = self.after(ended)
        with self.begin() as uow:
            stored = present(uow.instances.get(machine.id))
            stored.state = InstanceState.TERMINATED
            stored.ended_at, stored.ended_by = at, ended_by
            stored.ended_source = said or "provider_record"
            for span in uow.instances.assignments(machine.id):
                span.to_at = max(span.from_at, min(span.to_at or at, at))

    def quote(
        self, seconds: float = 0, changes: Sequence[tuple[float, int]] = ((-60, PRICE),)
    ) -> None:
        """The provider was asked at that time, and said these prices of the spot pool."""
        price = changes[-1][1] if changes else PRICE
        offers = [
            Offer(POOL, V100, price, ON_DEMAND_PRICE, "ec2", self.after(seconds), "trace"),
            Offer(
                ON_DEMAND,
                V100,
                ON_DEMAND_PRICE,
                ON_DEMAND_PRICE,
                "ec2",
                self.after(seconds),
                "list",
            ),
        ]
        told = [PriceChange(POOL, self.after(at), price, "trace") for at, price in changes]
        told.append(PriceChange(ON_DEMAND, self.after(-3600), ON_DEMAND_PRICE, "list"))
        with self.begin() as uow:
            uow.offers.record(offers, told, self.after(seconds))

    def set_job(self, job: Job, **fields: Any) -> None:
        change_row(self.engine, tables.jobs, job.id, **fields)

    # --- what is there ------------------------------------------------------------------------

    def ledger(self, machine: Instance | None = None) -> list[Any]:
        statement = select(ledger_entries).order_by(ledger_entries.c.booked_at, ledger_entries.c.id)
        if machine is not None:
            statement = statement.where(ledger_entries.c.instance_id == machine.id)
        return fetch(self.engine, statement)

    def booked(self, machine: Instance | None = None) -> int:
        return sum(entry.amount_microusd for entry in self.ledger(machine))

    def rolled_up(self) -> int:
        with self.engine.connect() as connection:
            return sum(row.amount_microusd for row in connection.execute(select(cost_rollups)))

    def budget(self, job: Job) -> Budget:
        return self._budget(tables.budgets.c.job_id == job.id)

    def project_budget(self, project_id: UUID) -> Budget:
        own = (tables.budgets.c.project_id == project_id) & tables.budgets.c.job_id.is_(None)
        return self._budget(own)

    def _budget(self, which: Any) -> Budget:
        with self.begin() as uow:
            row = uow.session.execute(select(*tables.budgets.c).where(which)).one()
            return uow.session.hold(Budget, tuple(row))

    def fresh(self, record: Any) -> Any:
        """The record as the database has it now."""
        with self.begin() as uow:
            return uow.session.get(type(record), record.id)


def locked_budgets(uow: UnitOfWork, job: Job) -> list[Budget]:
    """The job's budgets under their locks."""
    return uow.money.lock_budgets(job.project_id, job.budget_id)
