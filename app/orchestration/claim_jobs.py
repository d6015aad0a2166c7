"""THE QUEUE: take the first ready job, place its gang, and write attempt and launch as one.

Lives here: the claim. SKIP LOCKED lets any number of workers claim side by side; everything that
follows from a claim commits with it. Not here: the call to the cloud (`launch_instances`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.domain.attempt import AttemptState
from app.domain.end_reason import EndReason
from app.domain.entities import Attempt, Budget
from app.domain.events import Actor, ActorKind, JobEventKind
from app.domain.job import CLAIMABLE_JOB_STATES, JobEvent
from app.domain.placement import Considered, together
from app.orchestration.aggregate import JobAggregate, open_job
from app.orchestration.controller_frame import RowController
from app.orchestration.end_attempt import CLAIM_CONTROLLER, put_at_rest
from app.orchestration.fill_gang import candidates, fill_gang, no_offer_reason, offers_for
from app.orchestration.known_lineage import has_final_checkpoint
from app.orchestration.release_order import order_release
from app.orchestration.reserve_budget import check_and_reserve
from app.orchestration.runtime import Runtime
from app.ports.unit_of_work import UnitOfWork

_ACTOR = Actor(ActorKind.CONTROLLER, CLAIM_CONTROLLER)


@dataclass(frozen=True)
class ReadyJob:
    """A job to be claimed, if nobody else has it."""

    job_id: UUID


class ClaimJobs(RowController[ReadyJob]):
    """The controller of the queue."""

    name = CLAIM_CONTROLLER
    limit = 20

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.period_seconds = min(5.0, runtime.limits.next_look_seconds)

    def lease(self, uow: UnitOfWork, limit: int) -> list[ReadyJob]:
        """Ready jobs in queue order; the lock is taken when each is applied."""
        return [ReadyJob(job_id) for job_id in uow.jobs.ready_ids(uow.now, limit)]

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first waiting job is to be looked at."""
        return uow.jobs.next_ready_at()

    def apply(self, uow: UnitOfWork, work: ReadyJob, result: None) -> None:
        """Claim one job, or write why it waits."""
        job = uow.jobs.get(work.job_id)
        if job is None:
            return
        budgets = uow.money.lock_budgets(job.project_id, job.budget_id)
        with open_job(
            uow, self._runtime.entropy, work.job_id, _ACTOR, skip_locked=True
        ) as aggregate:
            if aggregate is None or aggregate.job.state not in CLAIMABLE_JOB_STATES:
                return
            due = aggregate.job.claimable_at
            if due is None or due <= aggregate.now:
                self._claim(aggregate, budgets)

    def _claim(self, aggregate: JobAggregate, budgets: list[Budget]) -> None:
        job, limits = aggregate.job, self._runtime.limits
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
            considered = self._offers(aggregate, missing)
            if not together(considered):
                self._wait(aggregate, no_offer_reason(aggregate, considered, missing))
                return
            missing = job.node_count - len(candidates(aggregate))
        bids = together(considered)
        prices = [bids[0].price_microusd_per_hour] * missing if bids else []
        verdict = check_and_reserve(
            aggregate.uow, budgets, job.id, prices, aggregate.living(), limits, aggregate.now
        )
        if not verdict.yes:
            aggregate.move_job(JobEvent.STOPPED_FOR_BUDGET, verdict.sentence)
            put_at_rest(aggregate, EndReason.BUDGET_EXHAUSTED, verdict.sentence)
            return
        self._start_attempt(aggregate, considered)

    def _offers(self, aggregate: JobAggregate, missing: int) -> tuple[Considered, ...]:
        """Where the rest of the gang can come from: beside the survivors, else all elsewhere."""
        considered = offers_for(aggregate, missing)
        survivors = candidates(aggregate)
        if together(considered) or not survivors:
            return considered
        elsewhere = offers_for(aggregate, aggregate.job.node_count, anywhere=True)
        if not together(elsewhere):
            return considered
        order_release(aggregate, survivors, "the gang moves to another zone")
        return elsewhere

    def _start_attempt(self, aggregate: JobAggregate, considered: tuple[Considered, ...]) -> None:
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
        aggregate.uow.flush()
        aggregate.uow.attempts.add(attempt)
        aggregate.attempt = attempt
        fill_gang(aggregate, limits)

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
