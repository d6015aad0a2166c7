"""One seed's schedule of faults: the production controllers on a fake cloud, until all is quiet.

Workers die between any two phases, in the midst of a batch too; answers come after their lease;
clouds, machines and messages fail as the dice say. Here: the schedule. Not here: what a cloud can
do wrong (`scripted_aws`, `scripted_gce`), its machines' agents (`scripted_agents`), or the rules
that are checked afterwards (`fault_rules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine, insert, select

from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES
from app.domain.lifecycle.job import TERMINAL_JOB_STATES, JobState, StopCause
from app.domain.spec.job_spec import parse_spec
from app.orchestration.controllers import all_controllers
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import (
    AnyController,
    apply_phase,
    effect_phase,
    select_phase,
)
from app.orchestration.frame.failing_work import FailingWork
from app.orchestration.frame.limits import Limits
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.stop_job import order_stop
from app.orchestration.queue.submit_job import submit_job
from app.ports.cloud_provider import ProviderError
from app.simulation.engine.seeded_entropy import Dice, SeededEntropy
from app.storage.schema import tables
from tests.support.api.agent_api import BY_PERSON, make_runtime
from tests.support.faults.scripted_agents import Crowd
from tests.support.faults.scripted_cloud import GPUS, ScriptedCloud
from tests.support.servers.table_rows import fetch

LIMITS: Final = Limits(
    registration_timeout_seconds=300,
    price_refresh_seconds=600,
    sweep_seconds=60,
    survivor_hold_seconds=300,
)
_TURNS: Final = 18
_CALM_TURNS_MAX: Final = 120
_CANCEL_AFTER: Final = 60
_JOBS: Final = 3
_LATE_SECONDS_MAX: Final = 400.0


@dataclass
class Deaths:
    """How often a worker dies, or a piece of work is late, between two phases."""

    before_effect: float = 0.06
    before_apply: float = 0.06
    late_apply: float = 0.04


@dataclass
class FaultRun:
    """One seed. log: what went wrong, in order; kept for the message of a failure."""

    engine: Engine
    folder: Path
    cloud: ScriptedCloud
    seed: int
    deaths: Deaths = field(default_factory=Deaths)
    log: list[str] = field(default_factory=list)
    workers: int = 0

    def __post_init__(self) -> None:
        self.dice = Dice(self.seed, "schedule")
        self.time = self.cloud.time
        made = make_runtime(self.engine, self.folder, LIMITS, self.time.now)
        entropy = SeededEntropy(self.seed, self.time)  # type: ignore[arg-type]
        self.runtime: Runtime = replace(made, clock=self.time, entropy=entropy)
        self._late: list[tuple[datetime, AnyController, Any, Any]] = []
        self._start_worker()
        self.crowd = Crowd(self.runtime, Dice(self.seed, "agents"))
        self.project_id = entropy.new_id()
        with self.engine.begin() as connection:
            deployment = {"id": 1, "deployment_id": UUID(int=1), "secret": "s" * 32}
            connection.execute(insert(tables.deployment).values(deployment))
            project = {"id": self.project_id, "name": "alpha", "created_at": self.time.now()}
            connection.execute(insert(tables.projects).values(project))

    def play(self) -> None:
        """Faults for a while, then none until every job has ended and is paid for."""
        for number in range(_TURNS):
            if number % (_TURNS // _JOBS) == 0:
                self._submit(number)
            if self.dice.chance(0.5):
                self._note(self.cloud.misbehave(self.dice))
            if self.dice.chance(0.3):
                self._note(self.cloud.harm(self.dice))
            self._turn(faulty=True)
            self.time.sleep(self.dice.uniform(3.0, 45.0))
        self.cloud.calm()
        self._note("calm")
        for number in range(_CALM_TURNS_MAX):
            self._turn(faulty=False)
            if self._is_over():
                return
            if number == _CANCEL_AFTER:
                self._cancel_all()
            self.time.sleep(30.0)
        raise AssertionError(f"it never came to rest: {self.describe()}")

    def rows(self, table: Any) -> list[Any]:
        """All rows of a table."""
        return fetch(self.engine, select(table))

    def describe(self) -> str:
        """The seed, what went wrong in it, and what is there now."""
        jobs = [f"job {row.name} {row.state} {row.wait_reason}" for row in self.rows(tables.jobs)]
        machines = [
            f"machine {row.provider_instance_id} {row.state} ended_by={row.ended_by} "
            f"source={row.ended_source} launched={row.launched_at} ended={row.ended_at} "
            f"final={row.cost_final_at is not None}"
            for row in self.rows(tables.instances)
        ]
        launches = [
            f"launch {row.client_token} {row.outcome} of {row.count}: {row.error}"
            for row in self.rows(tables.launches)
        ]
        with self.runtime.begin() as uow:
            orders = uow.sweeps.orders()
        head = f"{self.cloud.name} seed {self.seed}"
        tail = [f"sweeps: {orders.adopt_reason}", f"there: {sorted(self.cloud.living())}"]
        return "\n".join([head, *self.log, *jobs, *machines, *launches, *tail])

    # --- the worker ---

    def _start_worker(self) -> None:
        """A process that remembers nothing of the one before it."""
        provider, prices = self.cloud.connect()
        name = self.cloud.name
        runtime = replace(
            self.runtime,
            providers={name: provider},
            price_sources={name: prices},
            failing=FailingWork(),
        )
        self._worker = runtime
        self._controllers = all_controllers(runtime)
        self.workers += 1

    def _turn(self, *, faulty: bool) -> None:
        self._apply_late()
        for controller in self._controllers:
            if not self._run(controller, faulty):
                self._start_worker()
                break
        self.crowd.turn(self.cloud.running(), faulty=faulty)

    def _run(self, controller: AnyController, faulty: bool) -> bool:
        """One run of a controller; False when the worker died in it."""
        runtime = self._worker
        for piece in select_phase(runtime, controller):
            if faulty and self.dice.chance(self.deaths.before_effect):
                self._note(f"the worker dies before an effect of {controller.name}")
                return False
            try:
                result = effect_phase(controller, piece)
            except ProviderError as error:
                self._note(f"{controller.name}: {error}")
                runtime.failing.failed(controller.name, piece, self.time.now())
                continue
            if faulty and self.dice.chance(self.deaths.before_apply):
                self._note(f"the worker dies after an effect of {controller.name}")
                return False
            if faulty and self.dice.chance(self.deaths.late_apply):
                self._note(f"the answer to {controller.name} is late")
                at = self.time.now()
                self._late.append((at, controller, piece, result))
                continue
            apply_phase(runtime, controller, piece, result)
        return True

    def _apply_late(self) -> None:
        """Some of the late answers are written down now, by the worker that got them."""
        for late in list(self._late):
            age = (self.time.now() - late[0]).total_seconds()
            if age > _LATE_SECONDS_MAX or self.dice.chance(0.3):
                self._late.remove(late)
                apply_phase(self._worker, late[1], late[2], late[3])

    # --- people ---

    def _submit(self, number: int) -> None:
        spec = {
            "name": f"job-{number}",
            "run": "python train.py",
            "resources": {"gpu": list(GPUS)},
            "nodes": self.dice.choice((1, 2, 2)),
            "market": self.dice.choice(("spot", "spot", "on_demand")),
        }
        with self.runtime.begin() as uow:
            submit_job(uow, self.runtime, self.project_id, parse_spec(spec), BY_PERSON)

    def _cancel_all(self) -> None:
        self._note("a person cancels what has not ended")
        entropy = self.runtime.entropy
        for row in self.rows(tables.jobs):
            if row.state in TERMINAL_JOB_STATES:
                continue
            with self.runtime.begin() as uow, open_job(uow, entropy, row.id, BY_PERSON) as found:
                assert found is not None
                order_stop(found, StopCause.USER, "Ordered by test.", LIMITS)

    def _is_over(self) -> bool:
        """Every job has ended, its machines are gone, and their bills are final."""
        jobs, machines = self.rows(tables.jobs), self.rows(tables.instances)
        return (
            all(row.state in TERMINAL_JOB_STATES for row in jobs)
            and all(row.state in TERMINAL_INSTANCE_STATES for row in machines)
            and all(row.cost_final_at or row.launched_at is None for row in machines)
            and not self._late
            and not self.cloud.living()
        )

    def _note(self, text: str | None) -> None:
        if text is not None:
            self.log.append(f"{self.time.now():%H:%M:%S} {text}")


def ended_well(run: FaultRun) -> int:
    """How many jobs came to their end by training."""
    return sum(row.state is JobState.SUCCEEDED for row in run.rows(tables.jobs))
