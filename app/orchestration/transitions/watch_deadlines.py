"""Keep the promise of a deadline: leave spot at the last safe moment, acquire before release.

Lives here: when jobs with a deadline are looked at, and whether their deadline is safe. Not here:
the policy (`app.domain.deadline.deadline_policy`), what is decided (`placement.decide`), or the
deadline's own passing (`expire_deadlines`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.deadline import deadline_policy
from app.domain.deadline.deadline_policy import DeadlineDecision, DeadlineView, seems_slower
from app.domain.lifecycle.events import JobEventKind
from app.domain.lifecycle.job import ATTEMPT_JOB_STATES, CLAIMABLE_JOB_STATES, JobState
from app.domain.market.offer import Market
from app.domain.placement.decide import GangState, decide
from app.domain.placement.decision import Abandon, Decision, MarketDecision
from app.domain.placement.methods.offer_book import Quoted
from app.domain.units.durations import format_duration
from app.orchestration.estimates.attempt_measures import start_up_of
from app.orchestration.estimates.estimate_remaining import keep_progress
from app.orchestration.estimates.work_by_gpu import WorkByGpu, left_of
from app.orchestration.frame.aggregate import JobAggregate, parsed_spec
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.evidence_basis import EvidenceBasis, read_basis
from app.orchestration.frame.runtime import Runtime
from app.orchestration.placement.decision_log import NO_REASONS, Reasons
from app.orchestration.placement.evaluate_markets import DeadlineJob, MarketEvaluator, MarketValues
from app.orchestration.transitions.apply_decision import apply_decision, claim_now
from app.orchestration.transitions.gather_market import (
    deadline_view,
    market_beside,
    market_transition,
    promise_state,
)
from app.storage.unit_of_work import UnitOfWork

DEADLINE_CONTROLLER = "watch_deadlines"
# Of the work that is left: an estimate is seldom better.
SAFE_AGAIN_ROOM = 0.1
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PromisedJob:
    """A job with a deadline whose slack is to be looked at.

    promise: when it is time to weigh its markets again, with the offers as they stand. basis: the
    job as it stood then.
    """

    job_id: UUID
    promise: DeadlineJob | None = field(default=None, repr=False)
    offers: Quoted = field(default=(), repr=False)
    basis: EvidenceBasis | None = field(default=None, repr=False)


class WatchDeadlines(RuntimeController):
    """The controller of last safe moments."""

    name = DEADLINE_CONTROLLER
    limit = 200

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        # Progress is no newer than the reports. Rung more often than it looks: a look is set a
        # moment after its ring, and the ring one look later would come too early.
        self._every_seconds = 2 * runtime.limits.report_interval_seconds
        self._evaluator = MarketEvaluator(runtime)

    def select(self, uow: UnitOfWork, limit: int) -> list[PromisedJob]:
        """Live jobs with a deadline whose slack has not been looked at for a period."""
        found = uow.jobs.promised_ids(uow.now, self._latest(uow), limit)
        due = [job_id for job_id in found if self._evaluator.is_due(job_id)]
        offers = uow.offers.all() if due else ()
        return [
            _promised_job(uow, job_id, offers) if job_id in due else PromisedJob(job_id)
            for job_id in found
        ]

    def effect(self, work: PromisedJob) -> MarketValues | None:
        """Gather what a choice rests on, while nothing is locked."""
        if work.promise is None:
            return None
        self._evaluator.record_look(work.job_id, work.promise)
        market_values = self._evaluator.evaluate(work.promise, work.offers)
        counted = None
        if market_values is None:
            counted = self._evaluator.count(work.promise, work.offers)
        if counted is not None:
            self._evaluator.keep(work.job_id, counted)
        return market_values

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the slack of the first such job is to be looked at again."""
        return uow.jobs.next_promise_at(self._latest(uow))

    def apply(self, uow: UnitOfWork, work: PromisedJob, result: MarketValues | None) -> None:
        """Look at one job and act."""
        with self.locked(uow, work.job_id, looking=True) as aggregate:
            if aggregate is None:
                return
            job = aggregate.job
            if job.slack_look_at is not None and job.slack_look_at > self._latest(uow):
                ahead = format_duration((job.slack_look_at - uow.now).total_seconds())
                told = "the clock went back: job %s, due to be looked at in %s, is looked at now"
                log.warning(told, job.id, ahead)
            job.slack_look_at = None
            if job.deadline_at is None or not _promised(job.state):
                return
            job.slack_look_at = aggregate.look_in(self._every_seconds)
            if work.basis is not None and not work.basis.holds_for(aggregate):
                self._weigh_again(aggregate)
                result = None
            counted = self._counted(aggregate, result)
            # An abandoned change of market leaves the job as it was: it is decided on once more.
            for _ in range(2):
                if not isinstance(self._decide(aggregate, counted, result), Abandon):
                    break

    def _weigh_again(self, aggregate: JobAggregate) -> None:
        """The job has changed since its markets were weighed: its deadline alone decides now."""
        self._evaluator.forget_look(aggregate.job.id)
        aggregate.job.slack_look_at = None
        aggregate.uow.notify_after_commit(DEADLINE_CONTROLLER)

    def _latest(self, uow: UnitOfWork) -> datetime:
        """No look is set for later than that by a clock that has not gone back since."""
        return uow.now + timedelta(seconds=2 * self._every_seconds)

    def _counted(self, aggregate: JobAggregate, result: MarketValues | None) -> WorkByGpu:
        """How its work is counted in on-demand machines: as at the last choice that was weighed."""
        if result is not None:
            self._evaluator.keep(aggregate.job.id, result.work)
        return self._evaluator.kept(aggregate.job.id)

    def _decide(
        self, aggregate: JobAggregate, counted: WorkByGpu, values: MarketValues | None
    ) -> Decision | None:
        """Gather the job's state, decide and act."""
        job, limits, left = aggregate.job, self._runtime.limits, left_of(aggregate)
        if job.state is JobState.RUNNING:
            keep_progress(job, left, aggregate.now)
        look = self._every_seconds + self.period_seconds
        view = _doubted(aggregate, deadline_view(aggregate, counted, left, limits, look))
        promise = promise_state(aggregate, view, limits)
        job.last_safe_at = promise.decision.last_safe_at
        _record_safety(aggregate, view, promise.decision)
        transition = market_transition(aggregate, view, limits, early=promise.early)
        market = None if values is None else market_beside(aggregate, view, values, limits)
        decision = decide(GangState(promise=promise, transition=transition, market=market))
        if isinstance(decision, MarketDecision) and aggregate.attempt is None:
            if decision.turns:
                claim_now(aggregate)  # it turns there, where the budget covers it
            return decision
        reasons = NO_REASONS
        if values is not None and isinstance(decision, MarketDecision):
            gang = 1 if market is None else market.gang
            work = values.work
            reasons = Reasons(values.considered, gang, decision.choice, work.speeds, work)
        apply_decision(aggregate, decision, limits, reasons)
        return decision


def _doubted(aggregate: JobAggregate, view: DeadlineView) -> DeadlineView:
    """Note since when the pace alone would force the job off spot."""
    job, on_spot = aggregate.job, view.running_on is not Market.ON_DEMAND
    since = job.slower_since_at or aggregate.now
    job.slower_since_at = since if on_spot and seems_slower(view, aggregate.now) else None
    return replace(view, slower_since_at=job.slower_since_at)


def _promised_job(uow: UnitOfWork, job_id: UUID, offers: Quoted) -> PromisedJob:
    """The job as it stands unlocked; without a promise where there is nothing to weigh."""
    job = uow.jobs.get(job_id)
    if job is None or job.deadline_at is None:
        return PromisedJob(job_id)
    machines = uow.instances.of_job(job_id)
    pools = {one.pool for one in machines if one.pool is not None and one.market is Market.SPOT}
    promise = DeadlineJob(
        job_id,
        parsed_spec(job.spec),
        job.project_id,
        job.submitted_at,
        job.deadline_at,
        job.node_count,
        tuple(sorted(pools)),
        start_up_of(job),
    )
    return PromisedJob(job_id, promise, offers, read_basis(uow, job))


def _record_safety(aggregate: JobAggregate, view: DeadlineView, decision: DeadlineDecision) -> None:
    """Say once that the deadline is not safe any more, and take it back only with room to spare.

    What is left is an estimate that moves with every report; on the very edge it would say so anew
    at every other look.
    """
    job = aggregate.job
    if decision.unsafe_since_at is None:
        if job.unsafe_since_at is not None and _safe_with_room(view, aggregate.now):
            job.unsafe_since_at = None
    elif job.unsafe_since_at is None:
        # A job that was handed in too late was never safe: nothing of it is older than itself.
        job.unsafe_since_at = max(decision.unsafe_since_at, job.submitted_at)
        aggregate.record(JobEventKind.DEADLINE_UNSAFE, decision.sentence)


def _safe_with_room(view: DeadlineView, now: datetime) -> bool:
    if view.remaining_seconds is None:
        return False
    room = max(view.look_again_seconds, round(view.remaining_seconds * SAFE_AGAIN_ROOM))
    slower = replace(view, remaining_seconds=view.remaining_seconds + room)
    return deadline_policy.decide(slower, now).unsafe_since_at is None


def _promised(state: JobState) -> bool:
    return state in CLAIMABLE_JOB_STATES or (
        state in ATTEMPT_JOB_STATES and state is not JobState.STOPPING
    )
