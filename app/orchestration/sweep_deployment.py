"""Compare whole regions with our rows: machines nobody knows of, and rows nobody shows.

Lives here: the controller of lists. A machine without a row is adopted, paid for by its job or by
the deployment, and given back; a row without a machine gets a look of its own. Not here: what a
look at one machine means (`reconcile_instances`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.entities import Assignment, Instance
from app.domain.events import Actor, ActorKind, JobEventKind
from app.domain.instance import (
    INSTANCE_TRANSITIONS,
    TERMINAL_INSTANCE_STATES,
    EndedBy,
    InstanceEvent,
    InstanceState,
)
from app.domain.launch import OPEN_LAUNCH_OUTCOMES
from app.orchestration.accept_machines import accept_machine
from app.orchestration.aggregate import open_job
from app.orchestration.lose_instances import note_end
from app.orchestration.release_order import order_release
from app.orchestration.runtime import Runtime
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError
from app.ports.unit_of_work import UnitOfWork

SWEEP_CONTROLLER = "sweep_deployment"
_ACTOR = Actor(ActorKind.CLOUD, SWEEP_CONTROLLER)
_RUNNING = (MachineState.PENDING, MachineState.RUNNING)
_YOUNG = timedelta(seconds=5)
LOOK_SECONDS_MAX = 15.0


@dataclass(frozen=True)
class RegionToSweep:
    """One region of one provider."""

    provider: str
    region: str


@dataclass(frozen=True)
class RegionList:
    """What the cloud listed; `asked_at` is before the call. None when it could not be asked."""

    asked_at: datetime
    machines: tuple[CloudMachine, ...] | None
    complete: bool


@dataclass(frozen=True)
class _Stranger:
    """A running machine that no live row knows; who pays for it, and from when."""

    machine: CloudMachine
    job_id: UUID | None
    since: datetime
    source: str


class SweepDeployment:
    """The controller that finds leaks."""

    name = SWEEP_CONTROLLER
    queue = "cloud"
    limit = 50

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._every = timedelta(seconds=runtime.limits.sweep_seconds)
        # Rung more often than it lists: a list is recorded a moment after its ring, and the ring
        # one period later would find it not yet due. A list that failed is tried again soon.
        self.period_seconds = min(LOOK_SECONDS_MAX, runtime.limits.sweep_seconds / 4)

    def lease(self, uow: UnitOfWork, limit: int) -> list[RegionToSweep]:
        """Regions that were not listed for a period."""
        now, due = uow.now, []
        for work in self._regions():
            last = uow.operations.last_sweep_at(work.provider, work.region)
            if last is None or now - last >= self._every:
                due.append(work)
        return due[:limit]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first region is to be listed again."""
        lasts = [
            uow.operations.last_sweep_at(work.provider, work.region) for work in self._regions()
        ]
        return min(
            (uow.now if last is None else last + self._every for last in lasts), default=None
        )

    def effect(self, work: RegionToSweep) -> RegionList:
        """List the region."""
        asked_at = self._runtime.clock.now()
        try:
            listed = self._runtime.providers[work.provider].list_deployment(work.region)
        except ProviderError:
            return RegionList(asked_at, None, False)
        return RegionList(asked_at, listed.machines, listed.complete)

    def apply(self, uow: UnitOfWork, work: RegionToSweep, result: RegionList) -> None:
        """Adopt what has no row; look at what was not listed."""
        if result.machines is None:
            return
        machines = result.machines
        uow.operations.record_sweep(
            work.provider, work.region, result.asked_at, result.complete, len(machines)
        )
        unknown = [
            stranger
            for machine in sorted(machines, key=lambda item: item.provider_instance_id)
            if (stranger := self._stranger(uow, work.provider, machine)) is not None
        ]
        # A job that is locked elsewhere has its turn at the next list.
        for stranger in unknown:
            if stranger.job_id is None:
                self._adopt_for_deployment(uow, work.provider, stranger)
            else:
                self._adopt_for_job(uow, work.provider, stranger, stranger.job_id)
        if not result.complete:
            return
        uow.operations.close_stale_results(work.provider, result.asked_at)
        shown = {machine.provider_instance_id for machine in machines}
        for instance_id, job_id, provider_id in uow.instances.live_of_region(
            work.provider, work.region
        ):
            if provider_id not in shown:
                self._look_soon(uow, instance_id, job_id)

    def _regions(self) -> list[RegionToSweep]:
        return [
            RegionToSweep(name, region)
            for name in sorted(self._runtime.providers)
            for region in self._runtime.providers[name].regions()
        ]

    def _look_soon(self, uow: UnitOfWork, instance_id: UUID, job_id: UUID | None) -> None:
        if job_id is None:
            return
        with open_job(uow, self._runtime.entropy, job_id, _ACTOR, skip_locked=True) as aggregate:
            instance = None if aggregate is None else uow.instances.get(instance_id)
            if aggregate is not None and instance is not None and instance.describe_at:
                instance.describe_at = min(instance.describe_at, aggregate.now)

    def _stranger(self, uow: UnitOfWork, provider: str, machine: CloudMachine) -> _Stranger | None:
        """The machine with the job that pays for it; None when its row is known or coming."""
        known = uow.instances.by_provider_id(provider, machine.provider_instance_id)
        runs = machine.state in _RUNNING
        if known is not None and not (runs and known.state in TERMINAL_INSTANCE_STATES):
            return None
        if not runs and (machine.launched_at is None or machine.ended_at is None):
            return None  # it never ran, or is on its way out: the next list has its end
        launch_id, tagged_id = (_tagged(machine, noun) for noun in ("launch", "job"))
        launch = None if launch_id is None else uow.launches.get(launch_id)
        if launch is not None and launch.outcome in OPEN_LAUNCH_OUTCOMES:
            # Its launch is still being asked about, with the same token: it will claim the machine.
            return None
        if machine.launched_at is not None and uow.now - machine.launched_at < _YOUNG:
            return None
        job_id = launch.job_id if launch is not None else None
        if job_id is None and tagged_id is not None and uow.jobs.get(tagged_id) is not None:
            job_id = tagged_id
        if known is None or known.launched_at is None or known.ended_at is None:
            since, source = machine.launched_at or uow.now, machine.launched_source or "first_seen"
        else:
            # What it cost before is in the bill of its ended row.
            since, source = max(known.launched_at, known.ended_at), "end_of_earlier_row"
        return _Stranger(machine, job_id, since, source)

    def _row(
        self, uow: UnitOfWork, provider: str, machine: CloudMachine, job_id: UUID | None
    ) -> Instance:
        return Instance(
            id=self._runtime.entropy.new_id(),
            job_id=job_id,
            launch_id=None,
            provider=provider,
            market=machine.pool.market,
            state=InstanceState.REQUESTED,
            origin="adopted",
            requested_at=uow.now,
            updated_at=uow.now,
        )

    def _adopt_for_job(
        self, uow: UnitOfWork, provider: str, stranger: _Stranger, job_id: UUID
    ) -> None:
        machine = stranger.machine
        with open_job(uow, self._runtime.entropy, job_id, _ACTOR, skip_locked=True) as aggregate:
            if aggregate is None:
                return
            instance = self._row(uow, provider, machine, job_id)
            uow.instances.add(instance)
            aggregate.adopt(instance)
            accept_machine(
                aggregate,
                instance,
                provider_instance_id=machine.provider_instance_id,
                pool=machine.pool,
                launched_at=stranger.since,
                launched_source=stranger.source,
                limits=self._runtime.limits,
            )
            aggregate.record(
                JobEventKind.INSTANCE_ADOPTED,
                "The cloud shows a machine of this job that no row knew: it is given back.",
                noun="instance",
                noun_id=instance.id,
                provider_instance_id=machine.provider_instance_id,
            )
            if machine.ended_at is None:
                order_release(aggregate, [instance], "nobody asked for it any more")
                return
            # It came and went between two lists: still, somebody has to pay for it.
            note_end(
                aggregate,
                instance,
                ended_at=machine.ended_at,
                ended_source=machine.ended_source,
                ended_by=machine.ended_by or EndedBy.UNKNOWN,
                limits=self._runtime.limits,
            )

    def _adopt_for_deployment(self, uow: UnitOfWork, provider: str, stranger: _Stranger) -> None:
        machine = stranger.machine
        instance = self._row(uow, provider, machine, None)
        for event in (InstanceEvent.LAUNCH_ACCEPTED, InstanceEvent.RELEASE_ORDERED):
            instance.state = INSTANCE_TRANSITIONS.next_state(instance.state, event)
        offer = uow.offers.get(machine.pool)
        instance.pool, instance.provider_instance_id = machine.pool, machine.provider_instance_id
        instance.cloud = None if offer is None else offer.cloud
        instance.billing_speed = 1 if offer is None else offer.billing_speed
        instance.launched_at, instance.launched_source = stranger.since, stranger.source
        instance.release_reason = "it belongs to no job"
        instance.release_ordered_at = instance.terminate_at = instance.describe_at = uow.now
        uow.instances.add(instance)
        uow.instances.add_assignment(
            Assignment(
                id=self._runtime.entropy.new_id(),
                instance_id=instance.id,
                job_id=None,
                attempt_id=None,
                from_at=instance.launched_at,
            )
        )
        uow.ring_after_commit("release_instances")


def _tagged(machine: CloudMachine, noun: str) -> UUID | None:
    """The id in a tag of ours; None when there is none, or somebody wrote something else there."""
    try:
        return UUID(machine.tags[f"lowtide:{noun}"])
    except (KeyError, ValueError):
        return None
