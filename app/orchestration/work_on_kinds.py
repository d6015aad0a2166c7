"""A job's work counted in hours of the on-demand machines that it would move to.

What is left of a job is known in seconds of the kind of machine that its progress was made on, or
that its estimate names; a deadline and a choice of market need it in seconds of another. Lives
here: that conversion, for specs that accept several kinds. Not here: speeds (`app.domain.
kind_speed`), or what is left (`estimate_remaining`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from uuid import UUID

from app.domain.entities import AttemptMember
from app.domain.job_spec import JobSpec
from app.domain.kind_speed import (
    NOTHING_MEASURED,
    V100,
    KindSpeeds,
    kind_of,
    kind_of_choice,
)
from app.domain.measured_run import Kind
from app.domain.offer import Offer, Pool
from app.domain.placement import work_alike
from app.orchestration.aggregate import JobAggregate
from app.orchestration.estimate_remaining import SECONDS_MAX


@dataclass(frozen=True)
class WorkOnKinds:
    """speeds: of kinds; on_demand: the kind that work is counted in, None where all are alike."""

    speeds: KindSpeeds = NOTHING_MEASURED
    on_demand: Kind | None = None

    def pace(self, offer: Offer) -> float:
        """How fast a machine works, against the on-demand kind."""
        if self.on_demand is None:
            return 1.0
        return self.speeds.of(kind_of(offer.hardware)) / self.speeds.of(self.on_demand)

    def on_demand_seconds(self, aggregate: JobAggregate, seconds: float | None) -> int | None:
        """What is left, from seconds of the machines that it is told for."""
        if seconds is None or self.on_demand is None:
            return None if seconds is None else ceil(seconds)
        there = self.speeds.seconds_on(self.on_demand, seconds, told_for(aggregate))
        return min(SECONDS_MAX, ceil(there))


ONE_KIND = WorkOnKinds()
"""All machines that are accepted work alike."""


def work_on(spec: JobSpec, speeds: KindSpeeds, on_demand: Offer) -> WorkOnKinds:
    """How a job's work is counted while this is the on-demand offer of its choice."""
    if work_alike(spec):
        return ONE_KIND
    return WorkOnKinds(speeds, kind_of(on_demand.hardware))


def told_for(aggregate: JobAggregate) -> Kind:
    """The kind whose seconds are left: that which trained last, else that of the estimate."""
    job, uow = aggregate.job, aggregate.uow
    kind = _kind_of_members(aggregate, aggregate.members)
    if kind is not None and aggregate.attempt is not None and aggregate.attempt.trained_at:
        return kind
    if job.trained_steps:
        trained = [one for one in uow.attempts.of_job(job.id) if one.trained_at is not None]
        if trained:
            last = max(trained, key=lambda one: one.fence)
            kind = _kind_of_members(aggregate, uow.attempts.members(last.id))
            if kind is not None:
                return kind
    estimate = aggregate.spec.estimate
    return V100 if estimate is None else kind_of_choice(estimate.gpu)


def _kind_of_members(aggregate: JobAggregate, members: Sequence[AttemptMember]) -> Kind | None:
    """A gang's machines are all of one type."""
    for member in members:
        pool = _pool_of(aggregate, member.instance_id)
        offer = None if pool is None else aggregate.uow.offers.get(pool)
        if offer is not None:
            return kind_of(offer.hardware)
    return None


def _pool_of(aggregate: JobAggregate, instance_id: UUID) -> Pool | None:
    instance = aggregate.instances.get(instance_id) or aggregate.uow.instances.get(instance_id)
    return None if instance is None else instance.pool
