"""Give a running elastic gang more or fewer machines, when that repays.

Lives here: the look at gangs that train, the request of further machines beside them, and the
yield once those are here. Not here: the rule (`placement.gang_size`), or what a loss makes of a
gang (`fill_gang`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from app.domain.lifecycle.attempt import AttemptState, DrainCause
from app.domain.lifecycle.entities import Attempt, Instance
from app.domain.lifecycle.events import Actor, ActorKind, JobEventKind
from app.domain.lifecycle.instance import InstanceState
from app.domain.lifecycle.job import JobState
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_options import has_room, size_option
from app.domain.placement.gang_size import ResizeView, SizeOption, choose_size, resize_repays
from app.domain.placement.placement import bids_for_best_region
from app.domain.placement.placement_decision import DecisionVerdict
from app.domain.throughput.gang_scaling import GangScaling
from app.orchestration.estimates.estimate_remaining import record_scaling
from app.orchestration.estimates.read_measured import read_measured
from app.orchestration.estimates.work_by_gpu import speeds_of
from app.orchestration.frame.aggregate import JobAggregate, open_job
from app.orchestration.frame.controller_frame import RowController
from app.orchestration.frame.parsed_specs import parsed_spec
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.frame.schedule import turn_of
from app.orchestration.gang.advance_attempt import order_drain
from app.orchestration.gang.check_budget import bids_within_budget
from app.orchestration.gang.fill_gang import candidates, offers_for
from app.orchestration.gang.order_instances import LaunchPurpose, order_instances
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.choose_gang_size import set_size, size_question
from app.orchestration.placement.decision_log import Reason, Reasons, record_decision
from app.storage.unit_of_work import UnitOfWork

RESIZE_CONTROLLER = "resize_gangs"
PENDING_LOOK_SECONDS: Final = 60.0
_ACTOR = Actor(ActorKind.CONTROLLER, RESIZE_CONTROLLER)


@dataclass(frozen=True)
class ElasticJob:
    """A job whose gang's size is to be looked at; scaling: as measured by now."""

    job_id: UUID
    scaling: GangScaling


class ResizeGangs(RowController[ElasticJob]):
    """The controller of `attempts.size_look_at`."""

    name = RESIZE_CONTROLLER
    limit = 50

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.queue, self.period_seconds = turn_of(self.name, runtime.limits)

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
        with open_job(
            uow, self._runtime.entropy, work.job_id, _ACTOR, skip_locked=True, looking=True
        ) as aggregate:
            attempt = None if aggregate is None else aggregate.attempt
            if aggregate is None or attempt is None or attempt.state is not AttemptState.RUNNING:
                return
            record_scaling(aggregate.job, work.scaling.kept_share)
            seconds = limits.resize_seconds
            if aggregate.job.node_count > attempt.node_count:
                seconds = min(seconds, PENDING_LOOK_SECONDS)
                _look_at_growth(aggregate, attempt, limits)
            elif _may_change(aggregate, attempt):
                _look_at_size(aggregate, attempt, limits, work.scaling)
                if aggregate.job.node_count > attempt.node_count:
                    seconds = min(seconds, PENDING_LOOK_SECONDS)
            attempt.size_look_at = aggregate.look_in(seconds)


def yield_to_larger(aggregate: JobAggregate, limits: Limits) -> None:
    """Once all that the gang is to grow by is here, it saves and goes on as the larger one."""
    attempt, job = aggregate.attempt, aggregate.job
    if attempt is None or attempt.state is not AttemptState.RUNNING or job.stop_cause is not None:
        return
    grows_by = job.node_count - attempt.node_count
    here = [one for one in _extra(aggregate) if one.state is InstanceState.REGISTERED]
    if 0 < grows_by <= len(here) and _may_change(aggregate, attempt):
        _yield(
            aggregate,
            f"{grows_by} more machines are ready: the job saves and continues on all of them.",
            limits,
        )


def _look_at_growth(aggregate: JobAggregate, attempt: Attempt, limits: Limits) -> None:
    """More machines are on their way; when one of them is lost, none of them is needed."""
    job, extra = aggregate.job, _extra(aggregate)
    if attempt.node_count + len(extra) >= job.node_count:
        yield_to_larger(aggregate, limits)
    elif job.state is JobState.RUNNING:
        order_release(aggregate, extra, "not all requested machines could be added")
        set_size(aggregate, attempt.node_count, "the additional machines did not start")


def _look_at_size(
    aggregate: JobAggregate, attempt: Attempt, limits: Limits, scaling: GangScaling
) -> None:
    """Choose a size at the prices of now, and act where the change repays."""
    nodes, count, gang = aggregate.spec.nodes, attempt.node_count, aggregate.gang_need
    judged = offers_for(aggregate, gang, 1, limits)
    offer = next((item.offer for item in judged if item.fits), None)
    present = offer or _present_offer(aggregate)
    if present is None:
        return
    sizes = [
        size
        for size in range(nodes.least, nodes.most + 1)
        if size <= count or (offer is not None and has_room(offer, size - count))
    ]
    options: list[SizeOption] = [size_option(present, size, present) for size in sizes]
    standing, _ = aggregate.uow.money.budgets_in_passing(
        aggregate.job.project_id, aggregate.job.budget_id
    )
    question = size_question(
        aggregate,
        gang,
        limits,
        standing,
        counted_in=present,
        speeds=speeds_of(aggregate),
        learned=scaling,
    )
    choice = choose_size(options, question)
    if choice is None:
        return
    now, chosen = (
        next(one for one in options if one.count == wanted) for wanted in (count, choice.count)
    )
    trained = aggregate.now - (attempt.trained_at or aggregate.now)
    view = ResizeView(now, chosen, trained.total_seconds(), limits.resize_seconds)
    why = resize_repays(view, question)
    if why is not None and chosen.count > count:
        _grow(aggregate, chosen.count - count, why, limits)
    elif why is not None:
        set_size(aggregate, chosen.count, why)
        _yield(aggregate, "The job saves and continues with fewer machines.", limits)


def _grow(aggregate: JobAggregate, more: int, why: str, limits: Limits) -> None:
    """Ask for the machines beside the gang; it trains on until all of them are here."""
    gang = aggregate.gang_need
    found = bids_for_best_region(offers_for(aggregate, gang, more, limits))
    offers = (
        bids_within_budget(aggregate, found, more, limits, can_do_without=True) if found else ()
    )
    if not offers:
        return
    launch, _ = order_instances(
        aggregate,
        offers,
        count=more,
        market=gang.market,
        purpose=LaunchPurpose.GROWTH,
        limits=limits,
    )
    text = f"{more} more requested in {offers[0].pool.zone}: {why}."
    on_demand = gang.market is Market.ON_DEMAND
    verdict = DecisionVerdict.ON_DEMAND if on_demand else DecisionVerdict.SPOT
    judged = offers_for(aggregate, gang, more, limits)
    reasons = Reasons(judged, more, speeds=speeds_of(aggregate))
    record_decision(aggregate, Reason(verdict, "growth", text), limits, reasons, chosen=offers)
    aggregate.record(
        JobEventKind.GROWTH_REQUESTED,
        text,
        noun="launch",
        noun_id=launch.id,
        count=more,
        zone=offers[0].pool.zone,
    )
    aggregate.job.node_count += more


def _yield(aggregate: JobAggregate, message: str, limits: Limits) -> None:
    until = aggregate.now + timedelta(seconds=limits.drain_seconds)
    order_drain(aggregate, DrainCause.YIELD, until, message, limits)


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


def _extra(aggregate: JobAggregate) -> list[Instance]:
    """Machines of the job that are in no attempt."""
    taken = {member.instance_id for member in aggregate.members}
    at_hand = candidates(aggregate, aggregate.gang_need)
    return [one for one in at_hand if one.id not in taken]


def _present_offer(aggregate: JobAggregate) -> Offer | None:
    """The pool that the gang is in, at its price of now; None when it is not quoted."""
    at_hand = candidates(aggregate, aggregate.gang_need)
    pools = sorted(one.pool for one in at_hand if one.pool is not None)
    return aggregate.uow.offers.get(pools[0]) if pools else None
