"""THE QUEUE: take the first ready job, place its gang, and write attempt and launch as one.

Lives here: the claim. SKIP LOCKED lets any number of workers claim side by side; everything that
follows from a claim commits with it. Not here: which machines it gets (`place_claimed`), the rows
of its attempt (`apply_claim`), or the call to the cloud (`launch_instances`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from app.domain.lifecycle.entities import Budget, Job
from app.domain.lifecycle.job import CLAIMABLE_JOB_STATES
from app.domain.lifecycle.retry_policy import BACKOFF_SECONDS_MAX
from app.domain.market.offer import Market
from app.domain.placement.decide import GangState, decide
from app.domain.placement.decision import ClaimDecision, ClaimRule, MarketDecision
from app.domain.placement.methods.offer_book import Quoted, Shortlist, shortlist
from app.domain.placement.placement import need_of
from app.domain.throughput.start_up import NOT_LEARNED, StartUp
from app.orchestration.agents.register_agent import checkpoint_uri
from app.orchestration.estimates.attempt_measures import keep_start_up, read_start_up
from app.orchestration.estimates.estimate_remaining import record_scaling
from app.orchestration.estimates.work_by_gpu import ONE_GPU
from app.orchestration.frame.aggregate import JobAggregate, parsed_spec
from app.orchestration.frame.controller_frame import RuntimeController
from app.orchestration.frame.evidence_basis import EvidenceBasis, offers_are_old
from app.orchestration.frame.lost_rows import (
    AwaitedLists,
    awaited_lists,
    heard_since,
    highest_fence,
    number_beyond,
)
from app.orchestration.frame.runtime import Runtime
from app.orchestration.frame.silence import left_to_its_lease
from app.orchestration.gang.end_attempt import CLAIM_CONTROLLER
from app.orchestration.gang.known_lineage import has_final_checkpoint
from app.orchestration.gang.move_gang import end_move
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.decision_log import Reasons
from app.orchestration.placement.evaluate_markets import DeadlineJob, MarketEvaluator, MarketValues
from app.orchestration.placement.read_offers import candidates
from app.orchestration.transitions.apply_decision import apply_decision
from app.orchestration.transitions.gather_gang import claim_state
from app.orchestration.transitions.gather_market import market_in_queue
from app.storage.jobs.job_repository import QueuedJob
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class ReadyJob:
    """A job to be claimed, if nobody else has it, with the offers as they stood at `read_at`.

    start_up: of its work, as learned. store_uri: where its checkpoints lie, if attempts may have
    been numbered that no row knows.
    """

    job_id: UUID
    project_id: UUID
    budget_id: UUID
    queued: QueuedJob = field(repr=False)
    offers: Quoted = field(repr=False)
    read_at: datetime
    start_up: StartUp | None = None
    store_uri: str | None = None


@dataclass(frozen=True)
class JobOffers:
    """The offers of each market that the job may get machines from, and what a choice rests on.

    serial_share: how its gangs scale, as measured; None: as expected. number_beyond: numbers the
    next attempt after those that only the store knows; None where no row can be missing.
    """

    by_market: Mapping[Market, Shortlist]
    market_values: MarketValues | None = None
    serial_share: float | None = None
    number_beyond: Callable[[Job], None] | None = None


class ClaimJobs(RuntimeController):
    """The controller of the queue."""

    name = CLAIM_CONTROLLER
    limit = 20

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._evaluator = MarketEvaluator(runtime)

    def select(self, uow: UnitOfWork, limit: int) -> list[ReadyJob]:
        """Ready jobs in queue order; the lock is taken when each is applied."""
        if self._awaited(uow) is not None:
            return []
        since = heard_since(uow)
        found = uow.jobs.ready(uow.now, limit, self._latest(uow))
        offers = uow.offers.all() if found else []
        at = self._runtime.clock.now()
        return [
            ReadyJob(
                one.job_id,
                one.project_id,
                one.budget_id,
                one,
                offers,
                at,
                read_start_up(uow, one.project_id, one.spec),
                self._store_uri(uow, one, since),
            )
            for one in found
        ]

    def effect(self, work: ReadyJob) -> JobOffers:
        """Sort out the offers, which may be thousands, while nothing is locked."""
        found = self._sort_out(work, work.offers, self._runtime.clock.now())
        if work.store_uri is None:
            return found
        highest = highest_fence(partial(self._runtime.store_at, work.store_uri))
        return replace(found, number_beyond=partial(number_beyond, highest=highest))

    def _sort_out(self, work: ReadyJob, offers: Quoted, now: datetime) -> JobOffers:
        promise = _promise_of(work.queued, work.start_up or NOT_LEARNED)
        market_values = None if promise is None else self._evaluator.evaluate(promise, offers)
        chooses = promise is not None and promise.may_evaluate
        markets = list(Market) if chooses else [work.queued.market_mode]
        measured = self._evaluator.measured(work.project_id, parsed_spec(work.queued.spec))
        lists = {one: _shortlist(offers, work.queued, one, now) for one in markets}
        known = {one: replace(found, speeds=measured.speeds) for one, found in lists.items()}
        return JobOffers(known, market_values, measured.scaling.kept_share)

    def next_due(self, uow: UnitOfWork) -> datetime | None:
        """When the first waiting job is to be looked at."""
        awaited = self._awaited(uow)
        return uow.jobs.next_ready_at(self._latest(uow)) if awaited is None else awaited.until

    def _awaited(self, uow: UnitOfWork) -> AwaitedLists | None:
        providers = self._runtime.providers
        regions = ((name, region) for name in providers for region in providers[name].regions())
        return awaited_lists(uow, uow.now, self._runtime.limits, regions)

    def _store_uri(self, uow: UnitOfWork, queued: QueuedJob, since: datetime | None) -> str | None:
        """Where to look for attempts that no row knows: its rows may be older than the last gap."""
        if since is None or (queued.claimed_at or queued.submitted_at) >= since:
            return None
        job = uow.jobs.get(queued.job_id)
        return None if job is None else checkpoint_uri(job, parsed_spec(job.spec), self._runtime)

    def _latest(self, uow: UnitOfWork) -> datetime:
        """No look is set for later than that by a clock that has not gone back since."""
        longest = max(BACKOFF_SECONDS_MAX, self._runtime.limits.next_look_seconds)
        return uow.now + timedelta(seconds=2 * longest)

    def apply(self, uow: UnitOfWork, work: ReadyJob, result: JobOffers) -> None:
        """Claim one job, or write why it waits."""
        now = self._runtime.clock.now()
        if offers_are_old(work.read_at, now):
            offers = uow.offers.all()
            fresh = {
                one: replace(_shortlist(offers, work.queued, one, now), speeds=old.speeds)
                for one, old in result.by_market.items()
            }
            result = replace(result, by_market=fresh)
        budgets = uow.money.lock_budgets(work.project_id, work.budget_id)
        with self.locked(uow, work.job_id) as aggregate:
            if aggregate is None or aggregate.job.state not in CLAIMABLE_JOB_STATES:
                return
            if not _basis_of(work.queued).holds_for(aggregate):
                uow.notify_after_commit(CLAIM_CONTROLLER)
                return  # it has changed since its offers were sorted out
            if aggregate.job.start_up_seconds is None:
                keep_start_up(aggregate.job, work.start_up)
            due = aggregate.job.claimable_at
            if due is None or due <= aggregate.now or due > self._latest(uow):
                self._claim(aggregate, budgets, result)

    def _claim(self, aggregate: JobAggregate, budgets: list[Budget], offered: JobOffers) -> None:
        job, limits = aggregate.job, self._runtime.limits
        finished = has_final_checkpoint(aggregate)
        if not finished:
            record_scaling(job, offered.serial_share)
        market = None
        if not finished and not aggregate.usable():
            market = market_in_queue(
                aggregate, offered.market_values, offered.by_market, budgets, limits
            )
        decision = decide(GangState(finished=finished, market=market))
        apply_decision(aggregate, decision, limits)
        if finished:
            return
        choice = decision.choice if isinstance(decision, MarketDecision) else None
        among = offered.by_market[job.market_mode]
        if choice is not None:
            among = replace(among, order=choice.order)
        claimed_with = self._keep_gang(aggregate)
        by_market = {**offered.by_market, job.market_mode: among}
        claim = claim_state(aggregate, by_market, budgets, limits, choice, claimed_with)
        placing = decide(GangState(claim=claim))
        starts = isinstance(placing, ClaimDecision) and placing.rule is ClaimRule.START
        if starts and offered.number_beyond is not None:
            offered.number_beyond(job)
        work = ONE_GPU if offered.market_values is None else offered.market_values.work
        reasons = Reasons(choice=choice, speeds=among.speeds, work=work)
        apply_decision(aggregate, placing, limits, reasons)

    def _keep_gang(self, aggregate: JobAggregate) -> int:
        """Give back what the gang does not need, and end a move: it has machines of one place now.

        Returns how many it could count on.
        """
        at_hand = candidates(aggregate, aggregate.gang_need)
        kept = at_hand[: aggregate.job.node_count]
        spare = [i for i in aggregate.usable() if i not in kept and not left_to_its_lease(i)]
        order_release(aggregate, spare, "the job no longer needs it")
        end_move(aggregate)
        return len(at_hand)


def _basis_of(queued: QueuedJob) -> EvidenceBasis:
    """A job that may be claimed has no live attempt."""
    return EvidenceBasis(
        queued.market_mode,
        queued.node_count,
        queued.next_fence,
        queued.moving_launch_id,
        queued.moving_until_at,
    )


def _shortlist(offers: Quoted, queued: QueuedJob, market: Market, now: datetime) -> Shortlist:
    need = need_of(parsed_spec(queued.spec), market, queued.node_count)
    return shortlist(offers, need, now)


def _promise_of(queued: QueuedJob, start_up: StartUp) -> DeadlineJob | None:
    """None for a job without a deadline."""
    if queued.deadline_at is None:
        return None
    spec = parsed_spec(queued.spec)
    least = spec.nodes.least
    return DeadlineJob(
        queued.job_id,
        spec,
        queued.project_id,
        queued.submitted_at,
        queued.deadline_at,
        least,
        start_up=start_up,
    )
