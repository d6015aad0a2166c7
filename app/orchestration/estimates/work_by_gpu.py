"""A job's work counted in hours of the on-demand machines that it would move to.

What is left of a job is known in seconds of the kind of machine that its progress was made on, or
that its estimate names; a deadline and a choice of market need it in seconds of another. Lives
here: that conversion, for specs that accept several kinds; and which of them are quick enough for
a deadline. Not here: speeds (`throughput.gpu_throughput`), or what is left (`estimate_remaining`,
which knows how work that is told for one kind does on another that alone is accepted).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import UUID

from app.domain.lifecycle.entities import AttemptMember, Contact
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.in_time import TimeLeft, in_time
from app.domain.placement.methods.offer_book import GangWork
from app.domain.placement.placement import Need, RankedOffer, work_alike
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.gpu_throughput import (
    NOTHING_MEASURED,
    V100,
    GpuThroughput,
    gpu_shape_of,
    gpu_shape_of_choice,
)
from app.domain.throughput.measured_run import GpuShape
from app.orchestration.estimates.attempt_measures import own_limits, read_measured
from app.orchestration.estimates.estimate_remaining import SECONDS_MAX, WorkLeft, work_left
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.limits import Limits


@dataclass(frozen=True)
class WorkByGpu:
    """speeds: of kinds; on_demand: the kind that work is counted in, None where all are alike."""

    speeds: GpuThroughput = NOTHING_MEASURED
    on_demand: GpuShape | None = None

    def pace(self, offer: Offer) -> float:
        """How fast a machine works, against the on-demand kind."""
        if self.on_demand is None:
            return 1.0
        return self.speeds.of(gpu_shape_of(offer.hardware)) / self.speeds.of(self.on_demand)

    def on_demand_seconds(self, aggregate: JobAggregate, left: WorkLeft) -> int | None:
        """What is left, from seconds of the machines that it is told for.

        On the on-demand machines that the job runs on already, where it does.
        """
        if left.seconds is None or self.on_demand is None:
            return left.seconds
        machines = [aggregate.instances[member.instance_id] for member in aggregate.members]
        has_them = all(one.market is Market.ON_DEMAND for one in machines)
        here = _shape_of_members(aggregate, aggregate.members) if has_them else None
        told = told_for(aggregate, left)
        there = self.speeds.seconds_on(here or self.on_demand, left.seconds, told)
        return min(SECONDS_MAX, ceil(there))


ONE_GPU = WorkByGpu()
"""All machines that are accepted work alike."""


def work_on(spec: JobSpec, speeds: GpuThroughput, on_demand: Offer) -> WorkByGpu:
    """How a job's work is counted while this is the on-demand offer of its choice."""
    if work_alike(spec):
        return ONE_GPU
    return WorkByGpu(speeds, gpu_shape_of(on_demand.hardware))


def speeds_of(aggregate: JobAggregate) -> GpuThroughput:
    """How fast kinds of machine do the job's work, where several are accepted.

    For who asks between two claims; a claim has read them before it locked anything.
    """
    if work_alike(aggregate.spec):
        return NOTHING_MEASURED
    if aggregate.speeds is None:
        found = read_measured(
            aggregate.uow, aggregate.job.project_id, aggregate.spec, aggregate.now
        )
        aggregate.speeds = found.speeds
    return aggregate.speeds


def left_of(aggregate: JobAggregate, gang: GangNeed | None = None) -> WorkLeft:
    """What is left of a job, from its newest reports.

    gang: the one that would do it, where no attempt is live; the job's own without it.
    """
    known, count = _contacts(aggregate), (gang or aggregate.gang_need).node_count
    return work_left(aggregate.job, aggregate.spec, aggregate.attempt, known, aggregate.now, count)


def _contacts(aggregate: JobAggregate) -> list[Contact]:
    found = [aggregate.uow.instances.contact(m.instance_id) for m in aggregate.members]
    return [contact for contact in found if contact is not None]


def quick_enough(
    aggregate: JobAggregate,
    gang: GangNeed,
    judged: tuple[RankedOffer, ...],
    need: Need,
    limits: Limits,
) -> tuple[RankedOffer, ...]:
    """The same offers; of on-demand ones those that would miss the deadline only if all would."""
    seconds = seconds_to_train(aggregate, need, limits)
    left = None if seconds is None else left_of(aggregate, gang)
    if seconds is None or left is None or left.seconds is None:
        return judged
    return in_time(judged, need.speeds, TimeLeft(seconds, left.seconds, told_for(aggregate, left)))


def seconds_to_train(aggregate: JobAggregate, need: Need, limits: Limits) -> float | None:
    """Until the deadline, less a start; None where every machine of the need is quick enough."""
    job = aggregate.job
    if need.market is not Market.ON_DEMAND or need.alike:
        return None
    if job.deadline_at is None or job.deadline_at <= aggregate.now:
        return None
    own = own_limits(aggregate, limits)
    start = own.restore_seconds + own.start_up_p95_seconds + own.boot_p95_seconds
    return (job.deadline_at - aggregate.now).total_seconds() - start


def gang_work(aggregate: JobAggregate, gang: GangNeed) -> GangWork:
    """What is left of a job for a gang of any size, from its newest reports."""
    job, spec, attempt, now = aggregate.job, aggregate.spec, aggregate.attempt, aggregate.now
    known = _contacts(aggregate)

    def seconds_for(count: int) -> int | None:
        return work_left(job, spec, attempt, known, now, count).seconds

    if work_alike(spec):
        return GangWork(seconds_for)
    left = work_left(job, spec, attempt, known, now, gang.node_count)
    return GangWork(seconds_for, told_for(aggregate, left))


def told_for(aggregate: JobAggregate, left: WorkLeft) -> GpuShape:
    """The kind whose seconds are left: the estimate's, until a rate is known of what trained."""
    if left.estimated:
        return _estimates_kind(aggregate)
    job, uow = aggregate.job, aggregate.uow
    shape = _shape_of_members(aggregate, aggregate.members)
    if shape is not None and left.measured_here:
        return shape
    if job.trained_steps:
        trained = [one for one in uow.attempts.of_job(job.id) if one.first_step is not None]
        if trained:
            last = max(trained, key=lambda one: one.fence)
            shape = _shape_of_members(aggregate, uow.attempts.members(last.id))
            if shape is not None:
                return shape
    return _estimates_kind(aggregate)


def _estimates_kind(aggregate: JobAggregate) -> GpuShape:
    estimate = aggregate.spec.estimate
    return V100 if estimate is None else gpu_shape_of_choice(estimate.gpu)


def _shape_of_members(aggregate: JobAggregate, members: Sequence[AttemptMember]) -> GpuShape | None:
    """A gang's machines are all of one type."""
    for member in members:
        pool = _pool_of(aggregate, member.instance_id)
        offer = None if pool is None else aggregate.uow.offers.get(pool)
        if offer is not None:
            return gpu_shape_of(offer.hardware)
    return None


def _pool_of(aggregate: JobAggregate, instance_id: UUID) -> Pool | None:
    instance = aggregate.instances.get(instance_id) or aggregate.uow.instances.get(instance_id)
    return None if instance is None else instance.pool
