"""Give a running elastic gang more or fewer machines, when that repays.

Lives here: when gangs that train are looked at, the sizes that they could have, and how far their
growth is. Not here: the rules (`placement.gang_size`, `placement.transition`), or what a loss makes
of a gang (`lose_instances`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from app.domain.lifecycle.attempt import AttemptState
from app.domain.lifecycle.entities import Attempt, Instance
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Offer
from app.domain.placement.decide import GangState, RunningTransition, SizeState, decide
from app.domain.placement.decision import Transition
from app.domain.placement.gang_size import has_room, size_option
from app.domain.placement.methods.gang_machines import place_of
from app.domain.throughput.gang_scaling import GangScaling
from app.orchestration.estimates.attempt_measures import read_measured
from app.orchestration.estimates.estimate_remaining import record_scaling
from app.orchestration.estimates.work_by_gpu import speeds_of
from app.orchestration.frame.aggregate import JobAggregate, parsed_spec
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.market_and_size import size_terms
from app.orchestration.placement.read_offers import candidates, offers_for
from app.orchestration.transitions.apply_decision import apply_decision
from app.orchestration.transitions.gather_gang import supply_for
from app.storage.unit_of_work import UnitOfWork

RESIZE_CONTROLLER = "resize_gangs"
PENDING_LOOK_SECONDS: Final = 60.0


@dataclass(frozen=True)
class ElasticJob:
    """A job whose gang's size is to be looked at; scaling: as measured by now."""

    job_id: UUID
    scaling: GangScaling


class ResizeGangs(RowController[ElasticJob]):
    """The controller of `attempts.size_look_at`."""

    name = RESIZE_CONTROLLER
    limit = 50

    def select(self, uow: UnitOfWork, limit: int) -> list[ElasticJob]:
        """Jobs whose gang trains and is to be looked at."""
        found = []
        for job_id in uow.attempts.size_look_due(uow.now, self._latest(uow), limit):
            job = uow.jobs.get(job_id)
            if job is not None:
                known = read_measured(uow, job.project_id, parsed_spec(job.spec), uow.now)
                found.append(ElasticJob(job_id, known.scaling))
        return found

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first gang is to be looked at."""
        return uow.attempts.next_size_look_at(self._latest(uow))

    def _latest(self, uow: UnitOfWork) -> datetime:
        """No look is set for later than that by a clock that has not gone back since."""
        return uow.now + timedelta(seconds=self._runtime.limits.resize_seconds)

    def apply(self, uow: UnitOfWork, work: ElasticJob, result: None) -> None:
        """Look at one gang: ask for more, go on with what has come, or leave it as it is."""
        limits = self._runtime.limits
        with self.locked(uow, work.job_id, looking=True) as aggregate:
            attempt = None if aggregate is None else aggregate.attempt
            if aggregate is None or attempt is None or attempt.state is not AttemptState.RUNNING:
                return
            record_scaling(aggregate.job, work.scaling.kept_share)
            if aggregate.job.node_count > attempt.node_count:
                state = GangState(transition=_growth(aggregate, attempt))
            else:
                state = GangState(size=_sizes(aggregate, attempt, limits, work.scaling))
            apply_decision(aggregate, decide(state), limits)
            pending = state.transition or aggregate.job.node_count > attempt.node_count
            attempt.size_look_at = aggregate.look_in(
                min(limits.resize_seconds, PENDING_LOOK_SECONDS)
                if pending
                else limits.resize_seconds
            )


def yield_to_larger(aggregate: JobAggregate, limits: Limits) -> None:
    """Once all that the gang is to grow by is here, it saves and goes on as the larger one."""
    attempt, job = aggregate.attempt, aggregate.job
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return
    if job.node_count > attempt.node_count:
        growth = replace(_growth(aggregate, attempt), can_abandon=False)
        apply_decision(aggregate, decide(GangState(transition=growth)), limits)


def _growth(aggregate: JobAggregate, attempt: Attempt) -> RunningTransition:
    """More machines are on their way; when one of them is lost, none of them is needed."""
    taken = {member.instance_id for member in aggregate.members}
    at_hand = candidates(aggregate, aggregate.gang_need)
    extra = [one for one in at_hand if one.id not in taken]
    wanted = aggregate.job.node_count - attempt.node_count
    return RunningTransition(
        Transition.GROW,
        wanted=wanted,
        coming=len(extra),
        here=sum(one.state is InstanceState.REGISTERED for one in extra),
        least=wanted,
        can_abandon=aggregate.job.state is JobState.RUNNING,
        can_cut_over=aggregate.job.stop_cause is None and _may_change(aggregate, attempt),
    )


def _sizes(
    aggregate: JobAggregate, attempt: Attempt, limits: Limits, scaling: GangScaling
) -> SizeState | None:
    """The sizes that it could have at the prices of now; None while something else is on."""
    if not _may_change(aggregate, attempt):
        return None
    nodes, count, gang = aggregate.spec.nodes, attempt.node_count, aggregate.gang_need
    judged = offers_for(aggregate, gang, 1, limits)
    offer = next((item.offer for item in judged if item.fits), None)
    present = offer or _present_offer(aggregate)
    if present is None:
        return None
    sizes = [
        size
        for size in range(nodes.least, nodes.most + 1)
        if size <= count or (offer is not None and has_room(offer, size - count))
    ]
    budgets = aggregate.uow.money.budgets(aggregate.job.project_id, aggregate.job.budget_id)
    terms = size_terms(
        aggregate, gang, limits, budgets, speeds=speeds_of(aggregate), learned=scaling
    )
    question = terms.question(gang.node_count, present)
    trained = aggregate.now - (attempt.trained_at or aggregate.now)
    options = [size_option(present, size, present) for size in sizes]
    supply = supply_for(aggregate, gang, limits, place_of(candidates(aggregate, gang)))
    sized, every = trained.total_seconds(), limits.resize_seconds
    return SizeState(options, question, count, sized, every, supply)


def _may_change(aggregate: JobAggregate, attempt: Attempt) -> bool:
    """Whether the whole gang trains in the market that the job is in, and nothing else is on."""
    job = aggregate.job
    if job.moving_launch_id is not None:
        return False
    members = [aggregate.instances[member.instance_id] for member in aggregate.members]
    settled = all(one.market is job.market_mode and one in _usable(aggregate) for one in members)
    return job.state is JobState.RUNNING and len(members) == attempt.node_count and settled


def _usable(aggregate: JobAggregate) -> list[Instance]:
    return [one for one in candidates(aggregate, aggregate.gang_need) if one.unreachable_at is None]


def _present_offer(aggregate: JobAggregate) -> Offer | None:
    """The pool that the gang is in, at its price of now; None when it is not quoted."""
    at_hand = candidates(aggregate, aggregate.gang_need)
    pools = sorted(one.pool for one in at_hand if one.pool is not None)
    return aggregate.uow.offers.get(pools[0]) if pools else None
