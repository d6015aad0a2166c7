"""A job for the pages to show: two machines, one taken by the cloud, a third in its place.

Here: rows as the controllers and agents leave them, with a past that ends now. Money is booked by
the real controllers, history and logs go through the real doors. Not here: the browser.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from app.adapters.object_stores.obstore_store import open_object_store
from app.adapters.system_entropy import SystemEntropy
from app.domain.lifecycle.attempt import AttemptEvent, AttemptState
from app.domain.lifecycle.entities import (
    Attempt,
    AttemptMember,
    CheckpointRecord,
    Contact,
    Instance,
    Job,
    Launch,
)
from app.domain.lifecycle.events import Actor, ActorKind, HistoryKind, JobEventKind
from app.domain.lifecycle.instance import EndedBy, InstanceEvent
from app.domain.lifecycle.job import JobEvent, JobState
from app.domain.lifecycle.launch import LaunchOutcome
from app.domain.market.offer import Market
from app.domain.spec.job_spec import parse_spec
from app.orchestration.agents.append_logs import append_log
from app.orchestration.frame.aggregate import open_job
from app.orchestration.money.accrue_costs import AccrueCosts
from app.orchestration.queue.submit_job import submit_job
from app.storage.jobs.event_rows import PhaseRecord
from app.storage.jobs.log_repository import LogStream
from tests.support.stories.money_story import MoneyStory
from trainer.protocol.bottleneck import Shares

AGE_SECONDS = 1300
NOTICE, KILL, RESUME = 700, 820, 812
STEPS, RATE = 1000, 0.62
SHARES = Shares(data_wait=0.31, all_reduce=0.04, checkpoint=0.01, gpu_utilization=24.0, ranks=2)
PRICES = ((-600.0, 918_000), (900.0, 1_040_000))
SPEC = {
    "name": "digits",
    "trainer": {"model": "cnn", "data": "digits", "steps": STEPS},
    "nodes": 2,
    "resources": {"gpu": ["V100:1"]},
    "deadline": "2h",
    "budget_usd": 5,
    "labels": {"team": "vision"},
}
Phases = list[tuple[float, str, int | None, int | None]]
"""(seconds, phase, fence, step)"""


class PageStory(MoneyStory):
    """The story's clock ends at the present, so that a page that asks now sees it live."""

    def __init__(self, engine: Engine, project_id: UUID, folder: Path) -> None:
        self.start_at = datetime.now(UTC) - timedelta(seconds=AGE_SECONDS)
        super().__init__(engine)
        self.entropy = SystemEntropy()  # type: ignore[assignment]
        store = open_object_store(folder.as_uri())
        self.runtime = replace(self.runtime, entropy=self.entropy, object_store=store)
        self.accruing = AccrueCosts(self.runtime)
        self.project_id = project_id
        self.facts = 0
        self.go_to(0)

    def after(self, seconds: float) -> datetime:
        return self.start_at + timedelta(seconds=seconds)

    def submit(self, **fields: Any) -> UUID:
        """Hand a job in, by the real verb."""
        spec = parse_spec({**SPEC, **fields})
        actor = Actor(ActorKind.PERSON, "ada")
        with self.begin() as uow:
            return submit_job(uow, self.runtime, self.project_id, spec, actor).job_id

    def say(self, job_id: UUID, seconds: float, kind: HistoryKind, message: str, who: str) -> None:
        """A line of history, by the real door."""
        self.go_to(seconds)
        actor = Actor.parse(who)
        with self.begin() as uow, open_job(uow, self.entropy, job_id, actor) as aggregate:
            assert aggregate is not None
            aggregate.record(kind, message)

    def interrupted_run(self) -> UUID:
        """The whole story; the job trains at its end."""
        job_id = self.submit()
        job = self.job_row(job_id)
        self.quote(0, PRICES)
        self.set_job(
            job, state=JobState.RUNNING, started_at=self.after(150), next_fence=3,
            committed_step=step_at(1220), last_safe_at=self.after(4100), total_steps=STEPS,
            eta_at=self.after(second_of(STEPS)), eta_from="measured", steps_per_second=RATE,
        )  # fmt: skip
        first = self._attempt(job_id, 1, 3, 150, None)
        one, two = (self._machine(job_id, 3, 20, first) for _ in range(2))
        second = self._attempt(job_id, 2, 703, RESUME, 341)
        three = self._machine(job_id, 703, 716, None)
        for machine in (one, three):
            self.assign(machine, job, second, self.after(790))
        self._members(first, one, two)
        self._members(second, one, three)
        self._close_first(first, two)
        self._phases(job_id, one, _first_phases(RESUME))
        self._phases(job_id, two, [*_before_notice(), (715, "idle", 1, 341)])
        self._phases(job_id, three, [(716, "boot", None, None), (762, "setup", None, None),
                                     (790, "restore", 2, None), (806, "gang_wait", 2, 341),
                                     *_training(2, RESUME, 341)])  # fmt: skip
        self._points(job_id)
        self._contacts((one, three))
        self._checkpoints(job_id, one)
        self._history(job_id)
        self._logs(job_id, one, three)
        for seconds in (120, 600, KILL + 10, AGE_SECONDS - 3):
            self.accrue(seconds)
        return job_id

    def put_back(self, job_id: UUID) -> None:
        """The moment before the third machine of `interrupted_run` reports: it was asked for in
        place of the second, and its cloud has started it.
        """
        launch = Launch(
            id=self.entropy.new_id(), job_id=job_id, provider="local", client_token="replacement",
            count=1, min_count=1, market=Market.SPOT, bids=[], params_digest="d",
            purpose="replacement", outcome=LaunchOutcome.ACCEPTED, created_at=self.after(703),
            token_hash="h", token_expires_at=self.after(1600),
        )  # fmt: skip
        self.add(launch)
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE instances SET state = 'launched', launch_id = %s WHERE id = (SELECT id "
                "FROM instances WHERE job_id = %s ORDER BY requested_at DESC LIMIT 1)",
                (launch.id, job_id),
            )

    def state(self, job_id: UUID) -> JobState:
        """Where a job stands."""
        return self.job_row(job_id).state

    def states(self) -> dict[JobState, int]:
        """How many jobs there are in each state."""
        counted = "SELECT state, count(*) FROM jobs GROUP BY state"
        with self.engine.connect() as connection:
            rows = connection.exec_driver_sql(counted).all()
        return {JobState(state): count for state, count in rows}

    def change(self, job_id: UUID, **fields: Any) -> None:
        """What a controller would write into the job's row."""
        self.set_job(self.job_row(job_id), **fields)

    def job_row(self, job_id: UUID) -> Job:
        """The job as the database has it now."""
        with self.begin() as uow:
            found = uow.jobs.get(job_id)
        assert found is not None
        return found

    def writer_of(self, job_id: UUID, stream: str) -> str:
        """The credential (its hash) of the machine that writes a log."""
        return self._credential(self._stream(job_id, stream).instance_id)

    def log_size(self, job_id: UUID, stream: str) -> int:
        """How many bytes a log has."""
        return self._stream(job_id, stream).size_bytes

    def _stream(self, job_id: UUID, stream: str) -> LogStream:
        with self.begin() as uow:
            [found] = [one for one in uow.logs.streams(job_id) if one.stream == stream]
        return found

    # --- pieces -------------------------------------------------------------------------------

    def _attempt(
        self, job_id: UUID, fence: int, created: float, trained: float, parent: int | None
    ) -> Attempt:
        attempt = Attempt(
            id=self.entropy.new_id(), job_id=job_id, fence=fence,
            # Only one attempt may live: the first one's end is known when the second is made.
            state=AttemptState.INTERRUPTED if fence == 1 else AttemptState.RUNNING,
            node_count=2, created_at=self.after(created), updated_at=self.after(created),
            form_until_at=self.after(created + 1800), trained_at=self.after(trained),
            parent_fence=None if parent is None else fence - 1, parent_step=parent,
            best_step=parent or 0,
        )  # fmt: skip
        self.add(attempt)
        return attempt

    def _machine(
        self, job_id: UUID, requested: float, launched: float, attempt: Attempt | None
    ) -> Instance:
        job = self.job_row(job_id)
        registered_at = self.after(launched + 40)
        credential = self.entropy.new_token()
        machine = self.machine(
            job,
            launched,
            registered_at=registered_at,
            credential_hash=credential,
            on_demand_microusd_per_hour=3_060_000,
        )
        if attempt is not None:
            self.assign(machine, job, attempt, registered_at)
        with self.begin() as uow:
            stored = uow.instances.get(machine.id)
            assert stored is not None
            stored.requested_at = self.after(requested)
            stored.provider_instance_id = f"i-0{machine.id.hex[-12:]}"
        return machine

    def _members(self, attempt: Attempt, *machines: Instance) -> None:
        self.add(*(AttemptMember(attempt.id, one.id, rank) for rank, one in enumerate(machines)))

    def _close_first(self, first: Attempt, taken: Instance) -> None:
        with self.begin() as uow:
            [stored] = [one for one in [uow.instances.get(taken.id)] if one is not None]
            stored.noticed_at = self.after(NOTICE)
            stored.notice_deadline_at = self.after(KILL)
        self.end(taken, KILL, EndedBy.CLOUD_INTERRUPTION)
        with self.engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE attempts SET ended_at = %s, end_reason = 'spot_interrupted', "
                "end_message = 'The cloud took m2.', best_step = 341 WHERE id = %s",
                (self.after(715), first.id),
            )

    def _phases(self, job_id: UUID, machine: Instance, phases: Phases) -> None:
        with self.begin() as uow:
            for number, (seconds, phase, fence, step) in enumerate(phases, 1):
                uow.jobs.add_phase(
                    PhaseRecord(
                        machine.id, "s", number, job_id, phase, self.after(seconds), fence, step
                    )
                )

    def _points(self, job_id: UUID) -> None:
        for fence, first, last in ((1, 1, 341), (2, 342, step_at(AGE_SECONDS - 4))):
            points = [(step, self.after(second_of(step)), metrics_at(step))
                      for step in range(first, last + 1, 4)]  # fmt: skip
            with self.begin() as uow:
                uow.jobs.add_metric_points(job_id, fence, points)

    def _contacts(self, machines: tuple[Instance, ...]) -> None:
        step = step_at(AGE_SECONDS - 2)
        at = self.after(AGE_SECONDS - 1)
        metrics = {**metrics_at(step), **SHARES.metrics()}
        self.add(
            *(
                Contact(
                    one.id,
                    "s",
                    900,
                    at,
                    "train",
                    40,
                    2,
                    step,
                    STEPS,
                    metrics,
                    at,
                    first_step=342,
                    last_step=step,
                    stepping_seconds=(step - 342) / RATE,
                    start_up_seconds=8.0,
                )
                for one in machines
            )
        )

    def _checkpoints(self, job_id: UUID, machine: Instance) -> None:
        for fence, seconds in ((1, 270), (1, 390), (1, 510), (1, 630), (1, 712), (2, 930),
                               (2, 1050), (2, 1170), (2, 1220)):  # fmt: skip
            self.add(
                CheckpointRecord(
                    job_id, fence, step_at(seconds), "d" * 64, 44_800_000, False,
                    self.after(seconds + 2), machine.id,
                )
            )  # fmt: skip

    def _history(self, job_id: UUID) -> None:
        kinds = JobEventKind
        for seconds, kind, message, who in (
            (3, JobEvent.CLAIMED, "Claimed: 2 × V100 in us-west-2a at $0.918/h each, spot.",
             "controller:claim_jobs"),
            (20, InstanceEvent.LAUNCH_ACCEPTED, "2 machines started in us-west-2a.", "cloud:local"),
            (150, AttemptEvent.TRAINER_STARTED, "Training began on 2 machines.", "agent:m1"),
            (630, kinds.CHECKPOINT_COMMITTED, "Checkpoint 297 committed (44.8 MB).", "agent:m1"),
            (NOTICE, InstanceEvent.INTERRUPTION_NOTICED, "The cloud interrupts m2 in 120 s.",
             "agent:m2"),
            (702, AttemptEvent.DRAIN_ORDERED_INTERRUPTION, "Both machines save and stop.",
             "controller:receive_agent_report"),
            (703, kinds.REPLACEMENT_REQUESTED, "A replacement for m2 is asked for in us-west-2a.",
             "controller:launch_instances"),
            (712, kinds.CHECKPOINT_COMMITTED, "Checkpoint 341 committed (44.8 MB).", "agent:m1"),
            (RESUME, kinds.TRAINING_RESUMED, "Resumed at step 341 on m1 and m3; 0 steps redone.",
             "agent:m1"),
            (KILL, InstanceEvent.ABSENCE_CONFIRMED, "m2 is gone, interrupted by the cloud.",
             "cloud:local"),
        ):  # fmt: skip
            self.say(job_id, seconds, kind, message, who)

    def _logs(self, job_id: UUID, *machines: Instance) -> None:
        for rank, machine in enumerate(machines):
            lines = "".join(
                f"step {step} loss {metrics_at(step)['loss']:.4f}\n"
                for step in range(342, step_at(AGE_SECONDS - 4), 10)
            )
            text = f"\x1b[32mresumed at step 341\x1b[0m on rank {rank} <of 2>\n{lines}"
            stream = f"attempt-0002/node-{rank}.log"
            append_log(self.runtime, self._credential(machine.id), stream, 0, text.encode())

    def _credential(self, machine_id: UUID) -> str:
        with self.begin() as uow:
            stored = uow.instances.get(machine_id)
            assert stored is not None
            assert stored.credential_hash is not None
            return stored.credential_hash


def step_at(seconds: float) -> int:
    """How far training was by then."""
    if seconds < RESUME:
        return min(341, max(0, int((seconds - 150) * RATE)))
    return 341 + int((seconds - RESUME) * RATE)


def second_of(step: int) -> float:
    """When a step was finished."""
    return 150 + step / RATE if step <= 341 else RESUME + (step - 341) / RATE


def metrics_at(step: int) -> dict[str, float]:
    """What the trainer reports at a step: falling, with a little noise."""
    noise = math.sin(step * 12.9898) * 0.5 + math.sin(step * 3.7) * 0.5
    return {
        "loss": 0.09 + 2.1 * math.exp(-step / 130) * (1 + 0.12 * noise),
        "samples_per_second": 1940 + 60 * noise,
        "learning_rate": 0.001 * min(1.0, step / 50) * (1 + math.cos(math.pi * step / STEPS)) / 2,
    }


def _training(fence: int, start: float, step: int) -> Iterator[tuple[float, str, int, int]]:
    """Training from then on, with a checkpoint every two minutes."""
    yield start, "train", fence, step
    end = NOTICE if fence == 1 else AGE_SECONDS
    saved = start + 118
    while saved < end - 5:
        yield saved, "checkpoint", fence, step_at(saved)
        yield saved + 4, "train", fence, step_at(saved)
        saved += 120


def _before_notice() -> Phases:
    return [(20, "boot", None, None), (66, "setup", None, None), (128, "restore", 1, None),
            (134, "gang_wait", 1, None), *_training(1, 150, 0), (701, "drain", 1, 341),
            (704, "checkpoint", 1, 341)]  # fmt: skip


def _first_phases(resume: float) -> Phases:
    return [*_before_notice(), (713, "idle", 1, 341), (790, "restore", 2, 341),
            (798, "gang_wait", 2, 341), *_training(2, resume, 341)]  # fmt: skip
