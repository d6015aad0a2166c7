"""Look at machines the cloud way: what it says of each is a fact, and moves the row.

Lives here: the controller of looks at single machines, and what a look means; the second witness
of a silent machine comes from here. Not here: the sweep over whole regions (`sweep_deployment`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.billing.machine_facts import is_better_start
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.events import ActorKind
from app.domain.lifecycle.instance import (
    INSTANCE_TRANSITIONS,
    TERMINAL_INSTANCE_STATES,
    EndedBy,
    InstanceEvent,
    InstanceState,
)
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.look_order import RECONCILE_CONTROLLER
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.assign_instances import end_assignments
from app.orchestration.instances.accept_machines import set_launch_time
from app.orchestration.instances.record_host import record_host
from app.orchestration.transitions.lose_instances import record_end, record_stopping
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError
from app.storage.unit_of_work import UnitOfWork

_GONE = (MachineState.TERMINATED, MachineState.STOPPED)


@dataclass(frozen=True)
class MachineCheck:
    """One machine to look at."""

    instance_id: UUID
    job_id: UUID | None
    provider: str
    provider_instance_id: str

    @property
    def whose(self) -> UUID:
        """The job, or the machine where no job has it."""
        return self.job_id or self.instance_id


@dataclass(frozen=True)
class MachineCheckBatch:
    """Machines of one region of a provider, asked about in one call.

    alone: the one job, or the one machine without a job, whose looks these are; failures are
    remembered by it.
    """

    provider: str
    region: str
    looks: tuple[MachineCheck, ...]
    alone: UUID | None = field(init=False)

    def __post_init__(self) -> None:
        owners = {look.whose for look in self.looks}
        object.__setattr__(self, "alone", owners.pop() if len(owners) == 1 else None)


@dataclass(frozen=True)
class Listing:
    """What the cloud showed; `asked_at` is before the call. None when it could not be asked."""

    asked_at: datetime
    machines: dict[str, CloudMachine] | None


class ReconcileInstances(RuntimeController):
    """The controller that compares rows with what the cloud shows of them."""

    name = RECONCILE_CONTROLLER
    actor_kind = ActorKind.CLOUD
    limit = 100

    def select(self, uow: UnitOfWork, limit: int) -> list[MachineCheckBatch]:
        """Group due looks by region, so that one which does not answer hides no other's.

        A look changes nothing, so it takes no lease.
        """
        by_region: dict[tuple[str, str], list[MachineCheck]] = {}
        due = uow.instances.due_descriptions(uow.now, limit)
        for instance_id, job_id, provider, region, machine in due:
            look = MachineCheck(instance_id, job_id, provider, machine)
            by_region.setdefault((provider, region), []).append(look)
        return [MachineCheckBatch(*where, tuple(by_region[where])) for where in sorted(by_region)]

    def effect(self, work: MachineCheckBatch) -> Listing:
        """Ask the cloud about all of them."""
        asked_at = self._runtime.clock.now()
        provider = self._runtime.providers.get(work.provider)
        if provider is None:
            return Listing(asked_at, None)
        try:
            ids = tuple(look.provider_instance_id for look in work.looks)
            machines = provider.describe(ids, work.region or None)
        except ProviderError:
            return Listing(asked_at, None)
        return Listing(asked_at, {machine.provider_instance_id: machine for machine in machines})

    def apply(self, uow: UnitOfWork, work: MachineCheckBatch, result: Listing) -> None:
        """Apply what was seen, each machine under its job's lock, jobs in id order.

        A job that is locked elsewhere keeps its look, which is due again at once.
        """
        jobs = sorted({look.job_id for look in work.looks if look.job_id is not None})
        for job_id in jobs:
            job = uow.jobs.lock(job_id, skip_locked=True)
            if job is None:
                continue
            now = max(uow.now, job.updated_at)
            looks = [look for look in work.looks if look.job_id == job_id]
            news = [look for look in looks if not self._is_quiet(uow, look, result, now)]
            if not news:
                continue  # most looks: the job's version stays, and nobody's directive is stale
            with self.locked(uow, job_id, skip_locked=False) as aggregate:
                for look in news:
                    if aggregate is not None:
                        self._apply_one(aggregate, look, result)
        for look in work.looks:
            if look.job_id is None:
                self._apply_orphan(uow, look, result)

    def parts(self, work: MachineCheckBatch) -> list[MachineCheckBatch]:
        """Each job's looks, and each look at a machine without a job, alone.

        All together are written in one transaction, which spares most of them one of their own;
        when that fails, only the looks that cannot be written are left for later.
        """
        own: dict[UUID, list[MachineCheck]] = {}
        for look in work.looks:
            own.setdefault(look.whose, []).append(look)
        return [replace(work, looks=tuple(own[whose])) for whose in sorted(own)]

    def joined(self, parts: Sequence[MachineCheckBatch]) -> MachineCheckBatch:
        """Looks in one region again in one call."""
        return replace(parts[0], looks=tuple(look for part in parts for look in part.looks))

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first look is due."""
        return uow.instances.next_description_at()

    def _is_quiet(self, uow: UnitOfWork, look: MachineCheck, seen: Listing, now: datetime) -> bool:
        """Set the next look of a machine of which there is nothing new; False when there is."""
        instance = uow.instances.get(look.instance_id)
        if instance is None or instance.state in TERMINAL_INSTANCE_STATES:
            return False
        if seen.machines is not None:
            machine = seen.machines.get(look.provider_instance_id)
            unchanged = (
                machine is not None
                and machine.state in (MachineState.PENDING, MachineState.RUNNING)
                and instance.launched_at is not None
                and not is_better_start(machine.launched_source, instance.launched_source)
                and machine.host in ("", instance.host)
                and instance.absent_since_at is None
            )
            if not unchanged:
                return False
            instance.observed_at = max(instance.observed_at or seen.asked_at, seen.asked_at)
        instance.describe_at = now + timedelta(seconds=_period(instance, self._runtime.limits))
        return True

    def _apply_one(self, aggregate: JobAggregate, look: MachineCheck, seen: Listing) -> None:
        limits = self._runtime.limits
        instance = aggregate.uow.instances.get(look.instance_id)
        if instance is None or instance.state in TERMINAL_INSTANCE_STATES:
            if instance is not None:
                instance.describe_at = None
            return
        aggregate.adopt(instance)
        instance.describe_at = aggregate.now + timedelta(seconds=_period(instance, limits))
        stale = instance.observed_at is not None and seen.asked_at <= instance.observed_at
        if seen.machines is None or stale:
            return
        instance.observed_at = seen.asked_at
        machine = seen.machines.get(look.provider_instance_id)
        if machine is None:
            _record_absence(aggregate, instance, seen.asked_at, limits)
        else:
            instance.absent_since_at = None
            observe_machine(aggregate, instance, machine, seen.asked_at, limits)

    def _apply_orphan(self, uow: UnitOfWork, look: MachineCheck, seen: Listing) -> None:
        """A machine without a job: it is only ever on its way out."""
        instance = uow.instances.get(look.instance_id)
        if instance is None or seen.machines is None:
            return
        machine = seen.machines.get(look.provider_instance_id)
        if machine is not None and machine.state not in _GONE:
            soon = timedelta(seconds=self._runtime.limits.describe_soon_seconds)
            instance.describe_at = uow.now + soon
            return
        if machine is None and instance.absent_since_at is None:
            gap = timedelta(seconds=self._runtime.limits.absence_gap_seconds)
            instance.absent_since_at, instance.describe_at = seen.asked_at, uow.now + gap
            return
        event = InstanceEvent.ABSENCE_CONFIRMED
        instance.state = INSTANCE_TRANSITIONS.next_state(instance.state, event)
        instance.ended_by = EndedBy.US if machine is None else machine.ended_by
        instance.ended_at = (machine.ended_at if machine else None) or seen.asked_at
        instance.ended_source = machine.ended_source if machine else "first_seen_gone"
        instance.terminate_at = instance.describe_at = None
        end_assignments(
            uow, instance, max(instance.ended_at, instance.launched_at or seen.asked_at)
        )


def observe_machine(
    aggregate: JobAggregate,
    instance: Instance,
    machine: CloudMachine,
    asked_at: datetime,
    limits: Limits,
) -> None:
    """Apply the cloud's word on one machine."""
    set_launch_time(aggregate, instance, machine.launched_at, machine.launched_source)
    ended_by = _who(instance, machine)
    if machine.state in _GONE:
        record_end(
            aggregate,
            instance,
            ended_at=machine.ended_at or asked_at,
            ended_source=machine.ended_source if machine.ended_at else "first_seen_gone",
            ended_by=ended_by or _guess(instance),
            limits=limits,
        )
    elif machine.state is MachineState.SHUTTING_DOWN:
        record_stopping(aggregate, instance, limits, ended_by)
    elif machine.host:
        record_host(aggregate, instance, machine.host, limits)


def _who(instance: Instance, machine: CloudMachine) -> EndedBy | None:
    """Who ended it, by the cloud's word and our own: a cloud may know the account and no more.

    A call of the account that was not ours was somebody else's, also if ours followed later.
    """
    ours = instance.release_ordered_at is not None or instance.terminate_calls > 0
    known = instance.ended_by is EndedBy.OUTSIDER
    if machine.ended_by is EndedBy.US and (known or not ours):
        return EndedBy.OUTSIDER
    return machine.ended_by


def _record_absence(
    aggregate: JobAggregate, instance: Instance, asked_at: datetime, limits: Limits
) -> None:
    """The cloud does not know the id: twice, apart, and not for a newborn, it is gone."""
    born = _accepted_at(aggregate, instance)
    young = aggregate.now - born < timedelta(seconds=limits.absence_age_seconds)
    if young:
        return
    gap = timedelta(seconds=limits.absence_gap_seconds)
    if instance.absent_since_at is None:
        instance.absent_since_at = asked_at
        instance.describe_at = aggregate.now + gap
        return
    since = asked_at - instance.absent_since_at
    if since < gap:
        # A list in between made this look too early; the second witness comes in its time.
        instance.describe_at = aggregate.now + gap - since
        return
    record_end(
        aggregate,
        instance,
        ended_at=instance.absent_since_at,
        ended_source="first_seen_gone",
        ended_by=_guess(instance),
        limits=limits,
    )


def _accepted_at(aggregate: JobAggregate, instance: Instance) -> datetime:
    """When the cloud accepted the launch; it may have been asked in vain for long before.

    By our clock, as the age is: by the cloud's, a newborn is old where our clock is ahead.
    """
    launch = None
    if instance.launch_id is not None:
        launch = aggregate.uow.launches.get(instance.launch_id)
    settled_at = None if launch is None else launch.settled_at
    return max(instance.requested_at, settled_at or instance.requested_at)


def _guess(instance: Instance) -> EndedBy:
    """Who ended a machine when its cloud does not say: from what we know we did or were told."""
    if instance.release_ordered_at is not None:
        return EndedBy.US
    if instance.noticed_at is not None:
        return EndedBy.CLOUD_INTERRUPTION
    return EndedBy.UNKNOWN


def _period(instance: Instance, limits: Limits) -> float:
    """How soon to look again: soon where something is under way."""
    if instance.unreachable_at is not None or instance.state is not InstanceState.REGISTERED:
        return limits.describe_soon_seconds
    return limits.describe_seconds
