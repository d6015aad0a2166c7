"""A deployment whose controllers run on real rows, with a cloud and agents told what to do.

Here: time that stands until a test moves it, a cloud on paper behind the provider port, agents that
say what a test makes them say. Not here: money (`money_story`), or the api (`agent_api`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, insert, select

from app.domain.deployment.credentials import digest, launch_token
from app.domain.lifecycle.instance import LIVE_INSTANCE_STATES, EndedBy
from app.domain.lifecycle.job import StopCause
from app.domain.market.offer import Hardware, Market, Offer, Pool
from app.domain.spec.job_spec import parse_spec
from app.orchestration.agents.receive_agent_report import receive_agent_report
from app.orchestration.agents.register_agent import register_agent
from app.orchestration.deployment.sweep_deployment import SweepDeployment
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import AnyController, run_controller
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.instances.launch_instances import LaunchInstances
from app.orchestration.instances.reconcile_instances import ReconcileInstances
from app.orchestration.instances.release_instances import ReleaseInstances
from app.orchestration.queue.claim_jobs import ClaimJobs
from app.orchestration.queue.submit_job import submit_job
from app.orchestration.transitions.expire_deadlines import ExpireDeadlines
from app.orchestration.transitions.resize_gangs import ResizeGangs
from app.ports.cloud_provider import (
    CloudMachine,
    LaunchOrder,
    LaunchResult,
    MachineList,
    MachineState,
    PoolRefusal,
    ProviderError,
    RefusalKind,
)
from app.ports.price_source import PriceChange
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON, make_runtime
from tests.support.servers.table_rows import change_row, fetch
from tests.support.stories.idle_controllers import run_until_idle
from tests.support.stories.watched_paces import WatchedPaces
from trainer.protocol.agent_report import (
    PROTOCOL_VERSION,
    AgentReport,
    Fact,
    FactKind,
    MachinePhase,
    Progress,
    Registration,
)

ZONE_A = Pool("local", "us-west-2", "us-west-2a", "p3.2xlarge", Market.SPOT)
ZONE_B = Pool("local", "us-west-2", "us-west-2b", "p3.2xlarge", Market.SPOT)
FAR = Pool("local", "us-east-1", "us-east-1a", "p3.2xlarge", Market.SPOT)
ON_DEMAND_A = replace(ZONE_A, market=Market.ON_DEMAND)
V100 = Hardware("V100", 1, 16, 8, 61)
ON_DEMAND_PRICE = 10_000_000
SECRET = "s" * 32
PRICES = {ZONE_A: 1_000_000, ZONE_B: 2_000_000, FAR: 3_000_000, ON_DEMAND_A: ON_DEMAND_PRICE}


@dataclass
class PaperCloud:
    """Implements `CloudProvider`: starts what has room, and keeps what it is told of machines.

    room: machines that a pool still gives; a pool that is not in it gives any number. failures:
    errors of the next calls. silent: regions that do not answer about machines. calls: names of
    all calls, in order. orders: what was to be launched.
    """

    story: Story
    name: str = "local"
    call_timeout_seconds: float = 5.0
    room: dict[Pool, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    failures: list[ProviderError] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    orders: list[LaunchOrder] = field(default_factory=list)
    machines: dict[str, CloudMachine] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def regions(self) -> tuple[str, ...]:
        return ("us-east-1", "us-west-2")

    def launch(self, order: LaunchOrder) -> LaunchResult:
        self._begin("launch")
        self.orders.append(order)
        known = self.find(order.client_token)
        if known:
            return LaunchResult(tuple(machine.accepted() for machine in known))
        refused = []
        for bid in order.bids:
            if self.room.get(bid.pool, order.count) < order.min_count:
                refused.append(PoolRefusal(bid.pool, RefusalKind.NO_CAPACITY, "no room"))
                continue
            count = min(order.count, self.room.get(bid.pool, order.count))
            started = [self.start(bid.pool, order) for _ in range(count)]
            if bid.pool in self.room:
                self.room[bid.pool] -= count
            return LaunchResult(tuple(machine.accepted() for machine in started), tuple(refused))
        return LaunchResult((), tuple(refused))

    def poll_launch(self, operation: str) -> LaunchResult:
        raise AssertionError(f"this cloud answers at once, and has no operation {operation}")

    def find_by_token(
        self, client_token: str, region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        self._begin("find_by_token")
        return self.find(client_token)

    def list_deployment(self, region: str) -> MachineList:
        self._begin("list_deployment")
        found = (m for m in self.machines.values() if m.pool.region == region)
        return MachineList(tuple(found), complete=True)

    def describe(
        self, provider_instance_ids: tuple[str, ...], region: str | None = None
    ) -> tuple[CloudMachine, ...]:
        self._begin("describe", region)
        return tuple(m for key, m in self.machines.items() if key in provider_instance_ids)

    def terminate(self, provider_instance_ids: tuple[str, ...], region: str | None = None) -> None:
        self._begin("terminate", region)
        for machine_id in provider_instance_ids:
            if machine_id in self.machines:
                self.end(machine_id, EndedBy.US)

    # --- what the world does ---

    def find(self, client_token: str) -> tuple[CloudMachine, ...]:
        return tuple(m for m in self.machines.values() if m.client_token == client_token)

    def start(
        self, pool: Pool, order: LaunchOrder | None = None, tags: dict[str, str] | None = None
    ) -> CloudMachine:
        """A machine; without an order it is one that nobody here has asked for."""
        machine = CloudMachine(
            f"i-{next(self.numbers):04d}",
            "" if order is None else order.client_token,
            pool,
            MachineState.RUNNING,
            self.story.time,
            "provider_record",
            tags=dict(tags or {}) if order is None else dict(order.tags),
        )
        self.machines[machine.provider_instance_id] = machine
        return machine

    def end(self, machine_id: str, ended_by: EndedBy) -> None:
        machine = self.machines[machine_id]
        if machine.state is not MachineState.TERMINATED:
            self.machines[machine_id] = replace(
                machine,
                state=MachineState.TERMINATED,
                ended_by=ended_by,
                ended_at=self.story.time,
                ended_source="provider_record",
            )

    def running(self) -> list[str]:
        return [key for key, m in self.machines.items() if m.state is MachineState.RUNNING]

    def _begin(self, call: str, region: str | None = None) -> None:
        """An id does not tell its region: without one, all are asked."""
        self.calls.append(call)
        asked = {region} if region is not None else set(self.regions())
        if call in ("describe", "terminate") and asked & self.silent:
            raise ProviderError(RefusalKind.UNAVAILABLE, "the region does not answer")
        if self.failures:
            raise self.failures.pop(0)


class Story:
    """Rows, time, a cloud and agents; every method is one committed step."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        limits: Limits | None = None,
        make_cloud: Callable[[Story], PaperCloud] = PaperCloud,
    ) -> None:
        self.engine = engine
        self.time = self.start = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
        self.cloud = make_cloud(self)
        folder.mkdir(parents=True, exist_ok=True)
        made = make_runtime(engine, folder, limits or Limits(), lambda: self.time)
        self.runtime: Runtime = replace(made, clock=self, providers={"local": self.cloud})
        self.controllers: tuple[AnyController, ...] = (
            ClaimJobs(self.runtime),
            LaunchInstances(self.runtime),
            ReconcileInstances(self.runtime),
            ReleaseInstances(self.runtime),
            ExpireDeadlines(self.runtime),
        )
        self.sweeping = SweepDeployment(self.runtime)
        self.resizing = ResizeGangs(self.runtime)
        self.project_id = self.runtime.entropy.new_id()
        self._seqs: dict[UUID, int] = {}
        self._facts: dict[UUID, int] = {}
        self._credentials: dict[UUID, str] = {}
        self.paces = WatchedPaces()
        with engine.begin() as connection:
            secret = {"id": 1, "deployment_id": UUID(int=1), "secret": SECRET}
            connection.execute(insert(tables.deployment).values(secret))
            project = {"id": self.project_id, "name": "alpha", "created_at": self.start}
            connection.execute(insert(tables.projects).values(project))
        self.quote()

    # --- time ---

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def pass_time(self, seconds: float, every: float = 10.0) -> None:
        """Time goes by, and controllers run now and then."""
        until = self.time + timedelta(seconds=seconds)
        while self.time < until:
            self.time = min(until, self.time + timedelta(seconds=every))
            self.run()

    def run(self) -> None:
        """All controllers, until none finds work."""
        run_until_idle(self.runtime, self.controllers)

    def sweep(self) -> None:
        run_controller(self.runtime, self.sweeping)

    def resize(self) -> None:
        run_controller(self.runtime, self.resizing)

    # --- the market ---

    def quote(self, prices: dict[Pool, int] = PRICES, **more: Any) -> None:
        offers = [
            Offer(pool, V100, price, ON_DEMAND_PRICE, "ec2", self.time, "trace", **more)
            for pool, price in prices.items()
        ]
        changes = [
            PriceChange(pool, self.time - timedelta(hours=1), price, "trace")
            for pool, price in prices.items()
        ]
        with self.runtime.begin() as uow:
            uow.offers.record(offers, changes, self.time)

    # --- people ---

    def submit(self, **spec: Any) -> UUID:
        whole = {"run": "python train.py", "resources": {"gpu": "V100:1"}, "nodes": 1, **spec}
        with self.runtime.begin() as uow:
            done = submit_job(uow, self.runtime, self.project_id, parse_spec(whole), BY_PERSON)
        return done.job_id

    def stop(self, job_id: UUID, cause: StopCause = StopCause.USER) -> None:
        begin, entropy = self.runtime.begin, self.runtime.entropy
        with begin() as uow, open_job(uow, entropy, job_id, BY_PERSON) as aggregate:
            assert aggregate is not None
            order_stop(aggregate, cause, "Ordered by test.", self.runtime.limits)

    # --- agents ---

    def register(self, instance_id: UUID) -> None:
        """The agent of a started machine says that it is there."""
        machine = self.instance(instance_id)
        token = launch_token(SECRET, str(machine.launch_id))
        with self.runtime.begin() as uow:
            reply = register_agent(
                uow,
                self.runtime,
                Registration(
                    PROTOCOL_VERSION, token, f"nonce-{instance_id}", machine.provider_instance_id,
                    "boot", "session", 1_000, "10.0.0.1", 20_000, 20_100,
                ),
            )  # fmt: skip
        self._credentials[instance_id] = reply.credential

    def tell(
        self,
        instance_id: UUID,
        kind: FactKind | None = None,
        fence: int | None = 1,
        *,
        at_step: int | None = None,
        phase: MachinePhase = MachinePhase.TRAIN,
        **data: Any,
    ) -> Any:
        """An agent reports, with one fact or none; its answer."""
        seq = self._seqs[instance_id] = self._seqs.get(instance_id, 0) + 1
        facts: tuple[Fact, ...] = ()
        pace = self.paces.hear((instance_id, fence), kind, at_step, data, self.time.timestamp())
        if kind is not None:
            number = self._facts[instance_id] = self._facts.get(instance_id, 0) + 1
            facts = (Fact(number, kind, 1_000, fence, data),)
        report = AgentReport(
            PROTOCOL_VERSION, str(instance_id), "boot", "session", seq, 1_000, phase, fence,
            None if at_step is None else Progress(at_step, 1_000, pace=pace), facts,
        )  # fmt: skip
        credential = digest(self._credentials[instance_id])
        with self.runtime.begin() as uow:
            return receive_agent_report(uow, self.runtime, credential, report)

    def train(self, job_id: UUID, fence: int = 1, parent: dict[str, Any] | None = None) -> None:
        """Everything from the claim to the first step, for the job's newest attempt."""
        self.run()
        members = self.members(job_id, fence)
        for instance_id in members:
            if instance_id not in self._credentials:
                self.register(instance_id)
        for kind in (FactKind.PREPARED, FactKind.TRAINER_STARTED):
            for instance_id in members:
                self.tell(instance_id, kind, fence, master_port=20_001, parent=parent)
        assert self.job(job_id).state == "running"

    def training(self, nodes: int = 1, **spec: Any) -> tuple[UUID, list[UUID]]:
        """A new job that trains: its id, and its machines by rank."""
        job_id = self.submit(nodes=nodes, **spec)
        self.train(job_id)
        return job_id, self.members(job_id)

    def checkpoint(
        self, instance_id: UUID, fence: int, step: int, *, final: bool = False, **data: Any
    ) -> None:
        self.tell(
            instance_id, FactKind.CHECKPOINT, fence, step=step, digest=f"{fence}-{step}",
            final=final, **data,
        )  # fmt: skip

    # --- what is there ---

    def job(self, job_id: UUID) -> Any:
        return self._one(tables.jobs, job_id)

    def instance(self, instance_id: UUID) -> Any:
        return self._one(tables.instances, instance_id)

    def attempt(self, job_id: UUID, fence: int = 1) -> Any:
        own = (tables.attempts.c.job_id == job_id, tables.attempts.c.fence == fence)
        return self.rows(tables.attempts, *own)[0]

    def members(self, job_id: UUID, fence: int = 1) -> list[UUID]:
        """The attempt's instances, by rank."""
        found = tables.attempt_members
        rows = self.rows(found, found.c.attempt_id == self.attempt(job_id, fence).id)
        return [row.instance_id for row in sorted(rows, key=lambda row: row.node_rank)]

    def instances(self, job_id: UUID) -> list[Any]:
        rows = self.rows(tables.instances, tables.instances.c.job_id == job_id)
        return sorted(rows, key=lambda row: (row.requested_at, row.id))

    def living(self, job_id: UUID) -> list[Any]:
        return [row for row in self.instances(job_id) if row.state in LIVE_INSTANCE_STATES]

    def launches(self, job_id: UUID) -> Sequence[Any]:
        """The oldest first: rows lie in no order of their own."""
        found = self.rows(tables.launches, tables.launches.c.job_id == job_id)
        return sorted(found, key=lambda launch: launch.id)

    def rows(self, table: Any, *conditions: Any) -> Sequence[Any]:
        """By primary key. As they lie in their file, a row fills the room of a deleted one."""
        found = select(table).where(*conditions).order_by(*table.primary_key)
        return fetch(self.engine, found)

    def set(self, table: Any, row_id: UUID, **fields: Any) -> None:
        change_row(self.engine, table, row_id, **fields)

    def _one(self, table: Any, row_id: UUID) -> Any:
        return self.rows(table, table.c.id == row_id)[0]
