"""The job under its lock, with its live attempt, members and instances: the unit that changes.

Lives here: loading it, moving its states through their tables, and writing its history. Not here:
why anything moves (the verbs beside this file).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from uuid import UUID

import orjson

from app.domain.lifecycle.attempt import ATTEMPT_TRANSITIONS, TERMINAL_ATTEMPT_STATES, AttemptEvent
from app.domain.lifecycle.entities import Attempt, AttemptMember, Instance, Job, Launch
from app.domain.lifecycle.events import Actor, HistoryKind
from app.domain.lifecycle.instance import (
    INSTANCE_TRANSITIONS,
    TERMINAL_INSTANCE_STATES,
    InstanceEvent,
    InstanceState,
    events_for,
)
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    JOB_TRANSITIONS,
    TERMINAL_JOB_STATES,
    JobEvent,
)
from app.domain.notifications.triggers import trigger_of
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.gang_machines import MoveUnderWay
from app.domain.spec.job_spec import JobSpec, parse_spec
from app.domain.spec.spec_document import SpecDocument
from app.domain.throughput.gpu_throughput import GpuThroughput
from app.orchestration.frame.tell_channels import tell_of_job
from app.orchestration.frame.timers import next_timer
from app.ports.entropy import Entropy
from app.storage.jobs.event_rows import EventRecord
from app.storage.unit_of_work import UnitOfWork

_NOUNS: Final[Mapping[type, str]] = {
    type(None): "job",
    Attempt: "attempt",
    Instance: "instance",
    Launch: "launch",
}


def parsed_spec(stored: SpecDocument) -> JobSpec:
    """The spec of its stored form, read once per process: shared, and not to be changed.

    Raises what `parse_spec` raises.
    """
    return _parsed(orjson.dumps(stored))


@lru_cache(maxsize=256)
def _parsed(stored: bytes) -> JobSpec:
    return parse_spec(orjson.loads(stored))


class JobAggregate:
    """One job, locked, and everything it owns that is alive.

    now: the transaction's instant, never before the last change of this job. speeds: of kinds of
    machine at its work, once somebody asked (`work_by_gpu`).
    """

    def __init__(
        self, uow: UnitOfWork, entropy: Entropy, job: Job, actor: Actor, *, looking: bool = False
    ) -> None:
        self.uow = uow
        self.entropy = entropy
        self.job = job
        self.actor = actor
        self.now: datetime = max(uow.now, job.updated_at)
        # No other state has a live attempt: the database refuses it at the commit.
        self.attempt: Attempt | None = (
            uow.attempts.live(job.id) if job.state in ATTEMPT_JOB_STATES else None
        )
        self.members: list[AttemptMember] = (
            [] if self.attempt is None else uow.attempts.members(self.attempt.id)
        )
        self.instances: dict[UUID, Instance] = {
            instance.id: instance for instance in uow.instances.of_job(job.id)
        }
        for member in self.members:
            if member.instance_id not in self.instances:
                self.adopt(uow.instances.get(member.instance_id))
        self.speeds: GpuThroughput | None = None
        self._spec: JobSpec | None = None
        self._raised = False
        if not looking:
            self._raise_version()

    @property
    def spec(self) -> JobSpec:
        """The job's spec."""
        if self._spec is None:
            self._spec = parsed_spec(self.job.spec)
        return self._spec

    @property
    def gang_need(self) -> GangNeed:
        """The gang that the job has, or will have next, as its row says."""
        return GangNeed(self.job.market_mode, self.job.node_count)

    @property
    def move(self) -> MoveUnderWay | None:
        """The move that the job makes to another pool."""
        if self.job.moving_launch_id is None:
            return None
        return MoveUnderWay(self.job.moving_launch_id, is_on=self.job.moving_until_at is None)

    def _raise_version(self) -> None:
        """Say that the job has changed, once.

        Before anything is computed: an answer given in this transaction carries the version that
        its rows will have. After the first reads, so that one statement writes both columns.
        """
        if not self._raised:
            self._raised = True
            self.job.version += 1
            self.job.updated_at = self.now

    def record_change(self) -> None:
        """Who only looked has changed what machines are told, without a line of history."""
        self._raise_version()

    def ordinals(self) -> dict[int, int]:
        """Which one of the job's attempts each is, by fence: the number for sentences."""
        return self.uow.attempts.ordinals(self.job.id)

    def look_in(self, seconds: float) -> datetime:
        """When to look again: by the clock itself, be it behind the job's last change."""
        return self.uow.now + timedelta(seconds=seconds)

    def adopt(self, instance: Instance | None) -> None:
        """Take an instance of this job into the aggregate."""
        if instance is not None:
            self.instances[instance.id] = instance

    def living(self) -> list[Instance]:
        """Instances that are not in a terminal state, by request time then id."""
        return [i for i in self.instances.values() if i.state not in TERMINAL_INSTANCE_STATES]

    def usable(self) -> list[Instance]:
        """Instances the next attempt may count on: wanted, coming or here."""
        leaving = {InstanceState.INTERRUPTING, InstanceState.TERMINATING}
        return [i for i in self.living() if i.state not in leaving]

    def member_of(self, instance_id: UUID) -> AttemptMember | None:
        """The instance's part in the live attempt."""
        return next((m for m in self.members if m.instance_id == instance_id), None)

    def move_job(self, event: JobEvent, message: str, **data: object) -> None:
        """Apply an event to the job; IllegalTransition when it is a command that does not fit."""
        before = self.job.state
        self.job.state = JOB_TRANSITIONS.next_state(before, event)
        if self.job.state in TERMINAL_JOB_STATES and self.job.ended_at is None:
            self.job.ended_at = self.now
        self.record(
            event,
            message,
            about=None,
            from_state=before,
            to_state=self.job.state,
            **data,
        )

    def move_attempt(
        self, attempt: Attempt, event: AttemptEvent, message: str, **data: object
    ) -> None:
        """Apply an event to the attempt."""
        before = attempt.state
        attempt.state = ATTEMPT_TRANSITIONS.next_state(before, event)
        attempt.updated_at = self.now
        if attempt.state in TERMINAL_ATTEMPT_STATES and attempt.ended_at is None:
            attempt.ended_at = self.now
        self.record(
            event,
            message,
            about=attempt,
            from_state=before,
            to_state=attempt.state,
            fence=attempt.fence,
            **data,
        )

    def move_instance(
        self, instance: Instance, event: InstanceEvent, message: str, **data: object
    ) -> None:
        """Apply an event, and what it proves, to the instance."""
        for step in events_for(instance.state, event):
            before = instance.state
            instance.state = INSTANCE_TRANSITIONS.next_state(before, step)
            instance.updated_at = self.now
            self.record(
                step,
                message if step is event else "Confirmed by a later report.",
                about=instance,
                from_state=before,
                to_state=instance.state,
                **data,
            )

    def record(
        self,
        kind: HistoryKind,
        message: str,
        *,
        about: Attempt | Instance | Launch | None = None,
        from_state: str | None = None,
        to_state: str | None = None,
        **data: object,
    ) -> None:
        """Write one line of history, numbered under the job's lock; about: the job without it."""
        self._raise_version()
        self.job.event_seq += 1
        self.uow.jobs.add_event(
            EventRecord(
                job_id=self.job.id,
                seq=self.job.event_seq,
                at=self.now,
                actor=str(self.actor),
                kind=kind.value,
                noun=_NOUNS[type(about)],
                noun_id=self.job.id if about is None else about.id,
                from_state=from_state,
                to_state=to_state,
                message=message,
                data=data,
            )
        )
        has_trained = self.job.started_at is not None
        trigger = trigger_of(kind, to_state, data.get("reason"), has_trained=has_trained)
        if trigger is not None:
            tell_of_job(self.uow, self.entropy, self.job, trigger, message, self.now)

    def close(self) -> None:
        """Set the instant at which a rule of time applies next."""
        self.job.timer_at = next_timer(self.job, self.attempt, self.living())


@contextmanager
def open_job(
    uow: UnitOfWork,
    entropy: Entropy,
    job_id: UUID,
    actor: Actor,
    *,
    skip_locked: bool = False,
    looking: bool = False,
) -> Iterator[JobAggregate | None]:
    """The aggregate under the job's lock; None when it is absent, or locked and skipped.

    looking: the job's version stays as it is, and with it every directive that was handed out,
    unless something is recorded.
    """
    job = uow.jobs.lock(job_id, skip_locked=skip_locked)
    if job is None:
        yield None
        return
    aggregate = JobAggregate(uow, entropy, job, actor, looking=looking)
    yield aggregate
    aggregate.close()
