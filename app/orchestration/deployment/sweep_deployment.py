"""Compare whole regions with our rows: machines nobody knows of, and rows nobody shows.

Lives here: the controller of lists. A machine without a row is adopted, paid for by its job or by
the deployment, and given back, unless the list shows that rows are missing: then it is kept until a
person confirms. A row without a machine gets a look of its own. Under an order to destroy nothing
is kept. Not here: what is written for a machine (`adopt_orphans`), or what a look at one machine
means (`reconcile_instances`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.billing.machine_facts import TimeSource
from app.domain.deployment.sweep_rules import DeploymentEventKind, why_rows_are_missing
from app.domain.lifecycle.entities import Instance
from app.domain.lifecycle.instance import TERMINAL_INSTANCE_STATES
from app.domain.lifecycle.launch import OPEN_LAUNCH_OUTCOMES
from app.orchestration.deployment.adopt_orphans import (
    SWEEP_ACTOR,
    OrphanMachine,
    adopt_orphans,
)
from app.orchestration.deployment.destroy_deployment import end_job, end_orphan, record_progress
from app.orchestration.frame.aggregate import open_job
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.lost_rows import SWEEP_CONTROLLER, heard_since, record_rows_missing
from app.orchestration.frame.runtime import Runtime
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER
from app.ports.cloud_provider import CloudMachine, MachineState, ProviderError
from app.storage.instances.sweep_repository import DeploymentEvent, SweepOrders
from app.storage.unit_of_work import UnitOfWork

log = logging.getLogger(__name__)

_RUNNING = (MachineState.PENDING, MachineState.RUNNING)
_ENDED = (MachineState.TERMINATED, MachineState.STOPPED)
_YOUNG = timedelta(seconds=5)
_LISTS_LAG = timedelta(seconds=30)
"""How long after a machine's end a list may still show it running."""
_DESTROY_PERIOD = timedelta(seconds=5)
_LISTED_SOON_MAX = 3
"""So many incomplete lists in a row are followed by another one soon."""


@dataclass(frozen=True)
class RegionToSweep:
    """One region of one provider."""

    provider: str
    region: str


@dataclass(frozen=True)
class ToEnd:
    """Under an order to destroy: one job with its machines, or one machine without a job."""

    job_id: UUID | None
    instance_id: UUID | None


@dataclass(frozen=True)
class RegionList:
    """What the cloud listed; `asked_at` is before the call. None when it could not be asked."""

    asked_at: datetime
    machines: tuple[CloudMachine, ...] | None
    complete: bool


class SweepDeployment(RuntimeController):
    """The controller that finds leaks."""

    name = SWEEP_CONTROLLER
    limit = 50

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._every = timedelta(seconds=runtime.limits.sweep_seconds)
        self._incomplete: dict[RegionToSweep, int] = {}
        """Incomplete lists in a row, as counted by this process."""

    def select(self, uow: UnitOfWork, limit: int) -> list[RegionToSweep | ToEnd]:
        """Regions that are due, and under an order to destroy all that is to end."""
        orders = uow.sweeps.orders()
        due: list[RegionToSweep | ToEnd] = [
            work for work, at in self._dues(uow, orders) if at <= uow.now
        ]
        if orders.destroy_ordered_at is not None:
            due = [*self._to_end(uow), *due]
        return due[:limit]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first region is to be listed again."""
        orders = uow.sweeps.orders()
        if orders.destroy_ordered_at is not None and self._to_end(uow):
            return uow.now
        return min((at for _, at in self._dues(uow, orders)), default=None)

    def effect(self, work: RegionToSweep | ToEnd) -> RegionList:
        """List the region."""
        asked_at = self._runtime.clock.now()
        if isinstance(work, ToEnd):
            return RegionList(asked_at, None, False)
        try:
            listed = self._runtime.providers[work.provider].list_deployment(work.region)
        except ProviderError as error:
            log.warning("%s could not be listed at %s: %s", work.region, work.provider, error)
            return RegionList(asked_at, None, False)
        return RegionList(asked_at, listed.machines, listed.complete)

    def apply(self, uow: UnitOfWork, work: RegionToSweep | ToEnd, result: RegionList) -> None:
        """Adopt what has no row; look at what was not listed; end what is ordered to end."""
        if isinstance(work, ToEnd):
            self._end(uow, work)
        elif result.machines is not None:
            self._compare(uow, work, result, result.machines)
        if uow.sweeps.orders().destroy_ordered_at is not None:
            record_progress(uow, self._runtime)

    def _compare(
        self,
        uow: UnitOfWork,
        work: RegionToSweep,
        result: RegionList,
        machines: tuple[CloudMachine, ...],
    ) -> None:
        living = sum(machine.state not in _ENDED for machine in machines)
        self._incomplete[work] = 0 if result.complete else self._incomplete.get(work, 0) + 1
        uow.sweeps.record(work.provider, work.region, result.asked_at, result.complete, living)
        # All at once: nearly every machine is known, and there may be ten thousand.
        rows = uow.instances.live_of_region(work.provider, work.region)
        known = {provider_id for _, _, provider_id in rows}
        orphans = [
            orphan
            for machine in sorted(machines, key=lambda item: item.provider_instance_id)
            if machine.provider_instance_id not in known
            and (orphan := self._orphan(uow, work.provider, machine, result.asked_at))
        ]
        orders = self._orders_after(uow, machines, orphans)
        adopt_orphans(uow, self._runtime, work.provider, orphans, keep=orders.adopting)
        if not result.complete:
            return
        uow.operations.close_stale_results(work.provider, result.asked_at)
        uow.notify_after_commit(CLAIM_CONTROLLER)  # which may have waited for this list
        shown = {machine.provider_instance_id for machine in machines}
        for instance_id, job_id, provider_id in rows:
            if provider_id not in shown:
                self._look_soon(uow, instance_id, job_id)

    def _orders_after(
        self, uow: UnitOfWork, machines: tuple[CloudMachine, ...], orphans: list[OrphanMachine]
    ) -> SweepOrders:
        """What holds for this list: unknown machines are kept where it shows lost rows."""
        orders = uow.sweeps.orders()
        if orders.adopting or orders.destroy_ordered_at is not None:
            return orders
        running = [one for one in orphans if one.machine.state in _RUNNING]
        reason = why_rows_are_missing(
            listed=sum(machine.state in _RUNNING for machine in machines),
            unknown=len(running),
            of_unknown_launches=sum(one.unknown_launch for one in running),
        )
        if reason is None:
            return orders
        orders = replace(orders, adopt_since_at=uow.now, adopt_reason=reason)
        uow.sweeps.set_orders(adopt_since_at=uow.now, adopt_reason=reason)
        record_rows_missing(uow)
        text = f"Rows are missing: {reason}. Unknown machines are kept until a sweep is confirmed."
        event = DeploymentEvent(uow.now, DeploymentEventKind.ROWS_MISSING.value, text, {})
        uow.sweeps.add_event(self._runtime.entropy.new_id(), event)
        log.error("%s", text)
        return orders

    def _dues(self, uow: UnitOfWork, orders: SweepOrders) -> list[tuple[RegionToSweep, datetime]]:
        """Every region with the instant at which it is to be listed."""
        lasts = {(one.provider, one.region): one for one in uow.sweeps.regions()}
        every = self._every if orders.destroy_ordered_at is None else _DESTROY_PERIOD
        wanted = (orders.asked_at, orders.destroy_ordered_at, heard_since(uow))
        asked = [at for at in wanted if at is not None]
        due = []
        for work in self._regions():
            last = lasts.get((work.provider, work.region))
            if last is None or any(last.swept_at < at for at in asked):
                due.append((work, uow.now))
                continue
            # What a list left out may be a machine that nobody knows; but a region that is never
            # listed to its end is not asked more often for ever.
            soon = not last.complete and self._incomplete.get(work, 0) <= _LISTED_SOON_MAX
            usual = self._every / 4 if soon else self._every
            due.append((work, last.swept_at + min(every, usual)))
        return due

    def _to_end(self, uow: UnitOfWork) -> list[ToEnd]:
        return [ToEnd(job_id, instance_id) for job_id, instance_id in uow.sweeps.to_end()]

    def _end(self, uow: UnitOfWork, work: ToEnd) -> None:
        if work.job_id is not None:
            end_job(uow, self._runtime, work.job_id)
        elif work.instance_id is not None:
            end_orphan(uow, work.instance_id)

    def _regions(self) -> list[RegionToSweep]:
        return [
            RegionToSweep(name, region)
            for name in sorted(self._runtime.providers)
            for region in self._runtime.providers[name].regions()
        ]

    def _look_soon(self, uow: UnitOfWork, instance_id: UUID, job_id: UUID | None) -> None:
        if job_id is None:
            return
        with open_job(
            uow, self._runtime.entropy, job_id, SWEEP_ACTOR, skip_locked=True
        ) as aggregate:
            instance = None if aggregate is None else uow.instances.get(instance_id)
            if aggregate is not None and instance is not None and instance.describe_at:
                instance.describe_at = min(instance.describe_at, aggregate.now)

    def _orphan(
        self, uow: UnitOfWork, provider: str, machine: CloudMachine, asked_at: datetime
    ) -> OrphanMachine | None:
        """The machine with the job that pays for it; None when its row is known or coming."""
        known = uow.instances.by_provider_id(provider, machine.provider_instance_id)
        runs = machine.state in _RUNNING
        if known is not None and not (runs and _lives_again(known, asked_at)):
            return None
        if not runs and machine.launched_at is None:
            return None  # it never ran, and nobody owes anything for it
        if machine.state in _ENDED and machine.ended_at is None:
            return None  # the next list has its end
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
            since = machine.launched_at or uow.now
            source = machine.launched_source or TimeSource.FIRST_SEEN
        else:
            # What it cost before is in the bill of its ended row.
            since, source = max(known.launched_at, known.ended_at), "end_of_earlier_row"
        unknown = launch_id is not None and launch is None
        return OrphanMachine(machine, job_id, launch_id, unknown, since, source)


def _lives_again(known: Instance, asked_at: datetime) -> bool:
    """Whether a machine of an ended row runs, by a list that was asked for well after that end.

    A list of many pages is read for a minute and more: rows end meanwhile, and it is none the
    wiser.
    """
    if known.state not in TERMINAL_INSTANCE_STATES:
        return False
    return known.ended_at is None or asked_at > known.ended_at + _LISTS_LAG


def _tagged(machine: CloudMachine, noun: str) -> UUID | None:
    """The id in a tag of ours; None when there is none, or somebody wrote something else there."""
    try:
        return UUID(machine.tags[f"lowtide:{noun}"])
    except (KeyError, ValueError):
        return None
