"""A whole simulated world: control plane, clouds, machines and their agents, from one seed.

Lives here: the wiring. Not here: what goes wrong (`faults`), what must hold (`invariants`), or
which worlds there are (`scenarios`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, insert

from app.domain.deadline.live_placement import LivePlacement
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.lifecycle.instance import EndedBy
from app.domain.spec.job_spec import parse_spec
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.controller_frame import AnyController
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.queue.submit_job import submit_job
from app.simulation.engine.event_log import EventLog
from app.simulation.engine.event_loop import EventLoop
from app.simulation.engine.lease_watch import LeaseWatch
from app.simulation.engine.memory_store import MemoryStore
from app.simulation.engine.seeded_entropy import SeededEntropy
from app.simulation.engine.serial_effects import SerialEffects
from app.simulation.engine.virtual_clock import MICROSECONDS, HostClock, VirtualClock
from app.simulation.engine.watched_transactions import Interrupted, WatchedTransactions, Write
from app.simulation.simulated.agent_network import AgentNetwork
from app.simulation.simulated.controller_runner import ControllerRunner, SimulatedWakeups
from app.simulation.simulated.simulated_agent import AgentTools, SimulatedAgent
from app.simulation.simulated.simulated_cloud import CloudTools, SimulatedCloud
from app.simulation.simulated.simulated_gang import Trainings, Workload
from app.simulation.simulated.simulated_machine import SimulatedMachine
from app.simulation.simulated.simulated_market import MarketSettings, SimulatedMarket
from app.storage.schema.tables import budgets, deployment, projects

SIMULATED_LIMITS = Limits(
    report_interval_seconds=60.0,
    describe_seconds=600.0,
    describe_soon_seconds=15.0,
    sweep_seconds=600.0,
    settle_seconds=180.0,
    price_refresh_seconds=1_800.0,
    accrual_seconds=1_800.0,
)
"""Longer periods than production's where only the number of looks depends on them.

Reports come every minute here, not every ten seconds: settling waits longer than two missed ones.
"""

_LISTENING: tuple[Write, ...] = (
    ("deployment", frozenset({"hearing_since_at", "listening_at"})),
    ("deployment", frozenset({"listening_at"})),
)
# What api processes write all the time. After a gap, and every minute, these are asked anyway.
_DEAF: dict[str, Callable[[Write], bool]] = {
    "watch_contacts": lambda write: write[0] in ("contacts", "deployment"),
    "claim_jobs": lambda write: write in _LISTENING,
    "sweep_deployment": lambda write: write in _LISTENING,
}
_SUBMITTED_AGAIN_SECONDS = 120.0

MakeControllers = Callable[[Runtime], tuple[AnyController, ...]]


@dataclass(frozen=True)
class JobPlan:
    """A job somebody submits: its spec, what its trainers do, and when it comes."""

    spec: dict[str, Any]
    workload: Workload
    submit_at_seconds: float = 0.0


@dataclass(frozen=True)
class WorldSettings:
    """What a world is made of.

    hours: how long its markets are drawn for. project_cap_microusd: what all jobs may cost.
    """

    seed: int
    hours: float = 24.0
    market: MarketSettings = field(default_factory=MarketSettings)
    limits: Limits = SIMULATED_LIMITS
    controllers: MakeControllers = all_controllers
    echo: bool = False
    project_cap_microusd: int | None = None
    api_processes: int = 1


class World:
    """Everything there is in one simulation, on a database of its own."""

    def __init__(self, settings: WorldSettings, engine: Engine) -> None:
        self.settings = settings
        self.engine = engine
        self.clock = VirtualClock()
        self.host_clock = HostClock(self.clock)
        self.entropy = SeededEntropy(settings.seed, self.clock)
        self.log = EventLog(self.clock, settings.echo)
        self.loop = EventLoop(self.clock)
        self.store = MemoryStore()
        self.wakeups = SimulatedWakeups()
        self.transactions = WatchedTransactions(engine, self.wakeups, self.clock.now)
        self.market = SimulatedMarket(self.entropy, self.clock, settings.hours, settings.market)
        self.trainings = Trainings(self.loop, self.entropy.stream("trainings"))
        self.agents: dict[str, SimulatedAgent] = {}
        self.clouds = {name: self._cloud(name, cloud) for name, cloud in _CLOUDS}
        self.runtime = Runtime(
            begin=self.transactions,
            clock=self.host_clock,
            entropy=self.entropy,
            wakeups=self.wakeups,
            effects=SerialEffects(),
            object_store=self.store,
            store_at=self.store.at,
            providers=dict(self.clouds),
            price_sources=dict(self.clouds),
            control_url="https://control.simulated",
            checkpoint_root_uri="simulated://",
            make_placement=LivePlacement,
            limits=settings.limits,
        )
        self.network = AgentNetwork(
            self.runtime,
            engine,
            self.transactions,
            self.loop,
            self.log,
            self.entropy.stream("network"),
            settings.api_processes,
        )
        self.worker = ControllerRunner(
            self.runtime,
            self.transactions,
            settings.controllers(self.runtime),
            self.loop,
            self.log,
            self.entropy.stream("worker"),
            deaf=_DEAF,
            leases=LeaseWatch(engine, self.clock, self._changing_calls),
        )
        self.network.on_heard_again = lambda: self.worker.forget(*_DEAF)
        self.wakeups.runner = self.worker
        self.loop.tickers += [self.network, self.worker]
        self.project_id = self._found()
        self.jobs: list[UUID] = []
        self.planned = 0
        self._submitted: list[JobPlan] = []
        self.on_restored: list[Callable[[], None]] = []

    def restored(self) -> None:
        """The database has gone back to a backup: nobody knows better than its rows."""
        self.transactions.forget()
        self.worker.leases.forget()
        self.network.restored()
        self.worker.forget()
        for listen in self.on_restored:
            listen()
        # Whoever submitted a job that is lost misses it; one that is there is found by its key.
        for job in self._submitted:
            self.loop.after(_SUBMITTED_AGAIN_SECONDS, partial(self._submit, job))

    def plan(self, job: JobPlan) -> None:
        """Have the job submitted when its time comes."""
        self.planned += 1
        self.loop.after(job.submit_at_seconds, lambda: self._submit(job))

    def run(self, hours: float, stop: Callable[[], bool] | None = None) -> None:
        """Let so many virtual hours pass, counted from the start of the world."""
        until_us = self.clock.starts_us + round(hours * 3600 * MICROSECONDS)
        self.loop.run(until_us, stop)

    def agent_of(self, machine: SimulatedMachine) -> SimulatedAgent | None:
        """The agent on a machine, once the machine runs."""
        return self.agents.get(machine.machine_id)

    # --- inside ---

    def _cloud(self, name: str, cloud: str) -> SimulatedCloud:
        tools = CloudTools(
            loop=self.loop,
            log=self.log,
            market=self.market,
            in_transaction=lambda: self.transactions.is_open,
            on_running=self._boot,
            on_end=self._machine_ends,
            on_notice=self._notice,
        )
        return SimulatedCloud(name, cloud, self.entropy.stream(f"cloud/{name}"), tools)

    def _boot(self, machine: SimulatedMachine) -> None:
        if "LOWTIDE_LAUNCH_TOKEN" not in machine.user_data:
            return  # somebody else's machine: it runs whatever they put on it
        dice = self.entropy.stream(f"agent/{machine.machine_id}")
        tools = AgentTools(
            self.loop, self.log, self.network, self.trainings, self.store, self._power_off
        )
        agent = self.agents[machine.machine_id] = SimulatedAgent(tools, machine, dice)
        agent.boot(dice.uniform(20.0, 90.0))
        if machine.notice_us is not None:
            self._notice(machine)

    def _machine_ends(self, machine: SimulatedMachine) -> None:
        agent = self.agents.get(machine.machine_id)
        if agent is not None:
            agent.die()

    def _notice(self, machine: SimulatedMachine) -> None:
        agent, deadline_us = self.agents.get(machine.machine_id), machine.notice_us
        if agent is not None and deadline_us is not None:
            self.loop.after(
                agent.notice_delay(),
                lambda: agent.see_notice(
                    lambda: (deadline_us - self.clock.true_us) / MICROSECONDS, 1
                ),
            )

    def _changing_calls(self) -> int:
        """Calls of clouds that start or end machines, so far."""
        return sum(one.calls["launch"] + one.calls["terminate"] for one in self.clouds.values())

    def _power_off(self, machine: SimulatedMachine, ended_by: EndedBy) -> None:
        self.clouds[machine.pool.provider].stop(machine, ended_by, 5.0)

    def _submit(self, job: JobPlan) -> None:
        actor, key = Actor(ActorKind.PERSON, "simulated"), job.spec["name"]
        try:
            with self.runtime.begin() as uow:
                made = submit_job(
                    uow, self.runtime, self.project_id, parse_spec(job.spec), actor, key
                )
        except Interrupted:
            self.loop.after(5.0, lambda: self._submit(job))
            return
        if job not in self._submitted:
            self._submitted.append(job)
        if made.job_id not in self.jobs:
            self.trainings.workloads[str(made.job_id)] = job.workload
            self.jobs.append(made.job_id)
            self.log.write("person", f"submits {made.name}")

    def _found(self) -> UUID:
        """What a first start writes: the deployment and a project."""
        project_id = self.entropy.new_id()
        with self.engine.begin() as connection:
            connection.execute(
                insert(deployment).values(
                    id=1, deployment_id=self.entropy.new_id(), secret=self.entropy.new_token()
                )
            )
            connection.execute(
                insert(projects).values(
                    id=project_id,
                    name="simulated",
                    created_at=self.clock.now() - timedelta(days=1),
                )
            )
            if self.settings.project_cap_microusd is not None:
                connection.execute(
                    insert(budgets).values(
                        id=self.entropy.new_id(),
                        project_id=project_id,
                        cap_microusd=self.settings.project_cap_microusd,
                        spent_microusd=0,
                        reserved_microusd=0,
                    )
                )
        return project_id


_CLOUDS = (("aws", "ec2"), ("gcp", "gce"))
