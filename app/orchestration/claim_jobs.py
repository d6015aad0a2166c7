"""THE QUEUE: take the first ready job, place its gang, and write attempt and launch as one.

Lives here: the claim. SKIP LOCKED lets any number of workers claim side by side; everything that
follows from a claim commits with it. Not here: the call to the cloud (`launch_instances`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.attempt import AttemptState
from app.domain.budget import Verdict
from app.domain.end_reason import EndReason
from app.domain.entities import Attempt, Budget
from app.domain.events import Actor, ActorKind, JobEventKind
from app.domain.job import CLAIMABLE_JOB_STATES, JobEvent
from app.domain.offer import Offer
from app.domain.placement import Considered, need_of, together
from app.orchestration.aggregate import JobAggregate, open_job
from app.orchestration.end_attempt import CLAIM_CONTROLLER, put_at_rest
from app.orchestration.fill_gang import candidates, fill_gang, no_offer_reason, offers_for
from app.orchestration.known_lineage import has_final_checkpoint
from app.orchestration.parsed_specs import parsed_spec
from app.orchestration.price_restores import restore_of
from app.orchestration.release_order import order_release
from app.orchestration.reserve_budget import check_and_reserve, reserve_for_bids
from app.orchestration.runtime import Limits, Runtime
from app.orchestration.schedule import turn_of
from app.orchestration.shortlist import Quoted, Shortlist, shortlist
from app.ports.job_repositories import QueuedJob
from app.ports.unit_of_work import UnitOfWork

_ACTOR = Actor(ActorKind.CONTROLLER, CLAIM_CONTROLLER)


OFFERS_OLD_SECONDS = 2.0
"""Offers are read for all jobs of a round at once; a claim that comes later reads them anew."""


@dataclass(frozen=True)
class ReadyJob:
    """A job to be claimed, if nobody else has it, with the offers as they stood at `read_at`."""

    job_id: UUID
    project_id: UUID
    budget_id: UUID
    queued: QueuedJob = field(repr=False)
    offers: Quoted = field(repr=False)
    read_at: datetime


class ClaimJobs:
    """The controller of the queue."""

    name = CLAIM_CONTROLLER
    limit = 20

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.queue, self.period_seconds = turn_of(self.name, runtime.limits)

    def lease(self, uow: UnitOfWork, limit: int) -> list[ReadyJob]:
        """Ready jobs in queue order; the lock is taken when each is applied."""
        found = uow.jobs.ready(uow.now, limit)
        offers = uow.offers.all() if found else []
        at = self._runtime.clock.now()
        return [
            ReadyJob(one.job_id, one.project_id, one.budget_id, one, offers, at) for one in found
        ]

    def effect(self, work: ReadyJob) -> Shortlist:
        """Sort out the offers, which may be thousands, while nothing is locked."""
        return _sort_out(work.offers, work.queued, self._runtime.clock.now())

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first waiting job is to be looked at."""
        return uow.jobs.next_ready_at()

    def apply(self, uow: UnitOfWork, work: ReadyJob, result: Shortlist) -> None:
        """Claim one job, or write why it waits."""
        now = self._runtime.clock.now()
        if (now - work.read_at).total_seconds() > OFFERS_OLD_SECONDS:
            result = _sort_out(uow.offers.all(), work.queued, now)
        budgets = uow.money.lock_budgets(work.project_id, work.budget_id)
        with open_job(
            uow, self._runtime.entropy, work.job_id, _ACTOR, skip_locked=True
        ) as aggregate:
            if aggregate is None or aggregate.job.state not in CLAIMABLE_JOB_STATES:
                return
            if aggregate.job.market_mode is not work.queued.market_mode:
                uow.ring_after_commit(CLAIM_CONTROLLER)
                return  # it has changed since its offers were sorted out
            due = aggregate.job.claimable_at
            if due is None or due <= aggregate.now:
                self._claim(aggregate, budgets, result)

    def _claim(self, aggregate: JobAggregate, budgets: list[Budget], among: Shortlist) -> None:
        job = aggregate.job
        if has_final_checkpoint(aggregate):
            message = "The final checkpoint is in the lineage: the work is done."
            aggregate.move_job(JobEvent.COMPLETION_FOUND, message)
            put_at_rest(aggregate, EndReason.FINISHED, message)
            return
        at_hand = candidates(aggregate)
        spare = [i for i in aggregate.usable() if i not in at_hand[: job.node_count]]
        order_release(aggregate, spare, "the job does not need it any more")
        missing = max(0, job.node_count - len(at_hand))
        considered: tuple[Considered, ...] = ()
        if missing:
            considered = _offers(aggregate, missing, self._runtime.limits, among)
            if not together(considered):
                self._wait(aggregate, no_offer_reason(aggregate, considered, missing))
                return
            missing = job.node_count - len(candidates(aggregate))
        verdict, bids = self._reserve(aggregate, budgets, together(considered), missing)
        if not verdict.yes:
            aggregate.move_job(JobEvent.STOPPED_FOR_BUDGET, verdict.sentence)
            put_at_rest(aggregate, EndReason.BUDGET_EXHAUSTED, verdict.sentence)
            return
        self._start_attempt(aggregate, considered, bids)

    def _reserve(
        self,
        aggregate: JobAggregate,
        budgets: list[Budget],
        bids: Sequence[Offer],
        missing: int,
    ) -> tuple[Verdict, Sequence[Offer]]:
        """Hold money for what the launch may end in, and leave out what is too dear."""
        uow, job, limits = aggregate.uow, aggregate.job, self._runtime.limits
        living, now = aggregate.living(), aggregate.now
        if missing:
            return reserve_for_bids(
                uow, budgets, job.id, bids, missing, living, limits, now,
                restore=restore_of(aggregate),
            )  # fmt: skip
        return check_and_reserve(uow, budgets, job.id, [], living, limits, now), ()

    def _start_attempt(
        self,
        aggregate: JobAggregate,
        considered: tuple[Considered, ...],
        bids: Sequence[Offer],
    ) -> None:
        job, limits, now = aggregate.job, self._runtime.limits, aggregate.now
        attempt = Attempt(
            id=aggregate.entropy.new_id(),
            job_id=job.id,
            fence=job.next_fence,
            state=AttemptState.PROVISIONING,
            node_count=job.node_count,
            created_at=now,
            updated_at=now,
            form_until_at=now + timedelta(seconds=limits.provisioning_seconds),
        )
        job.next_fence += 1
        job.claimable_at = job.wait_reason = None
        aggregate.move_job(
            JobEvent.CLAIMED,
            f"Attempt {attempt.fence} begins with {len(candidates(aggregate))} machines at hand.",
            fence=attempt.fence,
            considered=[_shown(item) for item in considered[:40]],
        )
        aggregate.uow.attempts.add(attempt)
        aggregate.attempt = attempt
        fill_gang(aggregate, limits, bids)

    def _wait(self, aggregate: JobAggregate, reason: str) -> None:
        job = aggregate.job
        seconds = self._runtime.limits.next_look_seconds
        due = aggregate.now + timedelta(seconds=seconds)
        first_time = job.wait_reason != reason
        job.claimable_at, job.wait_reason = due, reason
        if first_time:
            aggregate.record(JobEventKind.WAITING, f"Waiting: {reason}.", next_look_at=str(due))
        if not aggregate.living():
            aggregate.uow.jobs.wait_together(job, job.capacity_key, due, reason)


def _sort_out(offers: Quoted, queued: QueuedJob, now: datetime) -> Shortlist:
    need = need_of(parsed_spec(queued.spec), queued.market_mode, queued.node_count)
    return shortlist(offers, need, now)


def _offers(
    aggregate: JobAggregate, missing: int, limits: Limits, among: Shortlist
) -> tuple[Considered, ...]:
    """Where the rest of the gang can come from: beside the survivors, else all elsewhere."""
    considered = offers_for(aggregate, missing, limits, among=among)
    survivors = candidates(aggregate)
    if together(considered) or not survivors:
        return considered
    elsewhere = offers_for(aggregate, aggregate.job.node_count, limits, anywhere=True, among=among)
    if not together(elsewhere):
        return considered
    order_release(aggregate, survivors, "the gang moves to another zone")
    return elsewhere


def _shown(item: Considered) -> dict[str, object]:
    """What the history keeps of a considered offer."""
    offer = item.offer
    return {
        "pool": offer.pool.key,
        "price_microusd_per_hour": offer.price_microusd_per_hour,
        "on_demand_microusd_per_hour": offer.on_demand_microusd_per_hour,
        "fits": item.fits,
        "why": item.why,
    }
