"""Waiting, spot and on-demand weighed for a job with a deadline, with what is known of pools now.

Lives here: gathering what the choice rests on while nothing is locked, and asking for the choice
under the lock, where it takes microseconds. Not here: the choice (`deadline.live_placement`),
what follows from it (`claim_jobs`, `watch_deadlines`), or the last safe moment, which overrules it
(`app.domain.deadline.deadline_policy`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final
from uuid import UUID

from cachetools import LRUCache

from app.domain.availability.availability_observations import NO_OBSERVATIONS
from app.domain.billing.egress import Restore, added_microusd_per_hour
from app.domain.deadline.live_choice import (
    PAST,
    TICK_SECONDS,
    LiveChoice,
    LivePool,
    LiveState,
    LiveTerms,
    PoolPlacement,
    tick_seconds_of,
)
from app.domain.deadline.policy_state import RunningOn
from app.domain.lifecycle.events import Actor, ActorKind
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.methods.offer_book import Quoted
from app.domain.placement.placement import Need, RankedOffer, rank_offers, work_alike
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.measured_work import NOT_MEASURED, MeasuredWork
from app.domain.throughput.start_up import NOT_LEARNED, StartUp
from app.orchestration.estimates.attempt_measures import read_measured, with_start_up
from app.orchestration.estimates.work_by_gpu import ONE_GPU, WorkByGpu, quick_enough, work_on
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits, Runtime
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.queue_need import queue_need

HORIZON_MIN: Final = timedelta(minutes=30)
"""A job with less time than that has no use for a plan: the last safe moment alone decides."""

POOLS_MAX: Final = 20
"""The pools of cheapest progress; what is dearer would hardly ever be chosen."""

PLACEMENTS_KEPT: Final = 32
LOOKS_KEPT: Final = 10_000
_START_UP_STEP: Final = 30.0
_USD: Final = 1_000_000
_READER: Final = Actor(ActorKind.CONTROLLER, "weigh_markets")


@dataclass(frozen=True)
class DeadlineJob:
    """A job with a deadline as it stands unlocked. running_in: spot pools of its machines.

    start_up: of its trainer, as learned.
    """

    job_id: UUID
    spec: JobSpec
    project_id: UUID
    submitted_at: datetime
    deadline_at: datetime
    node_count: int
    running_in: tuple[Pool, ...] = ()
    start_up: StartUp = NOT_LEARNED

    def limits(self, limits: Limits) -> Limits:
        """The deployment's times with the job's start-up."""
        return with_start_up(limits, self.start_up)

    @property
    def may_evaluate(self) -> bool:
        """Whether there is a choice at all, and time for one."""
        horizon = self.deadline_at - self.submitted_at
        return self.spec.effective_market() == "auto" and horizon >= HORIZON_MIN


@dataclass(frozen=True)
class JobProgress:
    """Where a job stands at its choice.

    work_seconds: that are left, on the on-demand machines that the job would move to.
    running_on: the market of what trains or prepares. start_left_seconds: until it trains.
    """

    work_seconds: float
    running_on: Market | None = None
    running_in: Pool | None = None
    start_left_seconds: float = 0.0


@dataclass(frozen=True)
class MarketValues:
    """Everything a choice needs but the job's own standing, which is read under its lock.

    on_demand_usd: what an on-demand machine costs per hour.
    """

    placement: PoolPlacement
    considered: tuple[RankedOffer, ...]
    work: WorkByGpu = ONE_GPU
    on_demand_usd: float = 0.0

    def choose(
        self, aggregate: JobAggregate, progress: JobProgress, limits: Limits
    ) -> LiveChoice | None:
        """What costs least from here on; None where the deadline leaves no choice.

        The reserve for getting on-demand machines is no time to plan with: what is safe here is
        safe by the last safe moment, too.
        """
        job = aggregate.job
        pools = self.placement.pools
        if job.deadline_at is None or (progress.running_in or pools[0]) not in pools:
            return None
        left = (job.deadline_at - aggregate.now).total_seconds()
        time_left = left - limits.on_demand_acquire_seconds
        if time_left <= 0:
            return None
        restore = restore_of(aggregate)
        running = {None: RunningOn.NOTHING, Market.SPOT: RunningOn.SPOT}
        return self.placement.choose(
            LiveState(
                time_left_seconds=time_left,
                work_left_seconds=progress.work_seconds,
                running_on=running.get(progress.running_on, RunningOn.ON_DEMAND),
                running_in=progress.running_in,
                start_left_seconds=progress.start_left_seconds,
                prices=[
                    _usd(item.offer, restore) / self.work.pace(item.offer)
                    for item in self.considered
                ],
            )
        )


class MarketEvaluator:
    """Makes what choices rest on, and keeps it for as long as nothing else has been seen."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Lost with the process, at no harm: all of it is made from rows again.
        self._kept = LRUCache[Hashable, PoolPlacement](PLACEMENTS_KEPT)
        self._looks = LRUCache[UUID, datetime](LOOKS_KEPT)
        self._works = LRUCache[UUID, WorkByGpu](LOOKS_KEPT)
        self._lock = Lock()

    def is_due(self, job_id: UUID) -> bool:
        """Whether it is time for a job's next choice: once in its tick.

        One that is further off than any tick was noted by a clock that ran ahead.
        """
        with self._lock:
            looked, now = self._looks.get(job_id), self._runtime.clock.now()
        latest = now + timedelta(seconds=TICK_SECONDS[1])
        return looked is None or not now < looked <= latest

    def record_look(self, job_id: UUID, promise: DeadlineJob) -> None:
        """The job's choice is looked at now."""
        horizon = (promise.deadline_at - promise.submitted_at).total_seconds()
        tick = timedelta(seconds=tick_seconds_of(horizon))
        with self._lock:
            self._looks[job_id] = self._runtime.clock.now() + tick

    def forget_look(self, job_id: UUID) -> None:
        """What the last look found was dropped: the job's choice is due."""
        with self._lock:
            self._looks.pop(job_id, None)

    def keep(self, job_id: UUID, work: WorkByGpu) -> None:
        """How the job's work is counted, until its next choice; machines alike need no note."""
        if work != ONE_GPU:
            with self._lock:
                self._works[job_id] = work

    def kept(self, job_id: UUID) -> WorkByGpu:
        """As it was kept; every process weighs a job at its first look at it."""
        with self._lock:
            return self._works.get(job_id, ONE_GPU)

    def evaluate(self, promise: DeadlineJob, quoted: Quoted) -> MarketValues | None:
        """What the job's choice rests on just now; None where there is nothing to choose.

        Reads rows in a transaction of its own: not to be called with one open.
        """
        if not promise.may_evaluate:
            return None
        now, need = self._runtime.clock.now(), self._need(promise)
        spot = _spot_offers(rank_offers(quoted, need, now), promise.running_in)
        on_demand = self._on_demand(promise, need, quoted, now) if spot else None
        if on_demand is None:
            return None
        work = work_on(promise.spec, need.speeds, on_demand)
        full_price = _usd(on_demand)
        if full_price <= 0:
            return None
        terms = LiveTerms(
            full_price,
            (promise.deadline_at - promise.submitted_at).total_seconds(),
            _planned(promise.limits(self._runtime.limits)),
        )
        rooms = tuple(_has_room(item, promise.running_in) for item in spot)
        placement = self._placement(spot, rooms, terms, work, now)
        return MarketValues(placement.at_hand(), tuple(spot), work, full_price)

    def count(self, promise: DeadlineJob, quoted: Quoted) -> WorkByGpu | None:
        """How the job's work is counted where nothing can be weighed; None where none fits.

        Reads rows in transactions of its own: not to be called with one open.
        """
        if work_alike(promise.spec):
            return ONE_GPU
        need = self._need(promise)
        on_demand = self._on_demand(promise, need, quoted, self._runtime.clock.now())
        return None if on_demand is None else work_on(promise.spec, need.speeds, on_demand)

    def _need(self, promise: DeadlineJob) -> Need:
        """Of spot machines, with what was measured of the work."""
        own = promise.limits(self._runtime.limits)
        need = queue_need(promise.spec, Market.SPOT, promise.node_count, own)
        return replace(need, speeds=self.measured(promise.project_id, promise.spec).speeds)

    def _on_demand(
        self, promise: DeadlineJob, need: Need, quoted: Quoted, now: datetime
    ) -> Offer | None:
        """The cheapest on-demand offer that is in time for the deadline, else the quickest.

        By what is left of the job as it stands unlocked.
        """
        dear = replace(need, market=Market.ON_DEMAND)
        judged = rank_offers(quoted, dear, now)
        if not dear.alike:
            with self._runtime.begin() as uow:
                job = uow.jobs.get(promise.job_id)
                if job is not None:
                    seen = JobAggregate(uow, self._runtime.entropy, job, _READER, looking=True)
                    judged = quick_enough(seen, seen.gang_need, judged, dear, self._runtime.limits)
        return next((item.offer for item in judged if item.fits), None)

    def measured(self, project_id: UUID, spec: JobSpec) -> MeasuredWork:
        """What was measured of this work, where its machines may differ in kind or in number."""
        told_for_gang = spec.estimate is None or spec.estimate.nodes == spec.nodes.least
        if work_alike(spec) and not spec.nodes.is_elastic and told_for_gang:
            return NOT_MEASURED
        with self._runtime.begin() as uow:
            return read_measured(uow, project_id, spec, self._runtime.clock.now())

    def _placement(
        self,
        spot: Sequence[RankedOffer],
        rooms: tuple[bool | None, ...],
        terms: LiveTerms,
        work: WorkByGpu,
        now: datetime,
    ) -> PoolPlacement:
        tick = int(now.timestamp() // tick_seconds_of(terms.horizon_seconds))
        pools = tuple(item.offer.pool for item in spot)
        paces = tuple(round(work.pace(item.offer), 3) for item in spot)
        key = (tick, pools, rooms, paces, terms)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None:
            return kept
        made = self._runtime.make_placement(terms, self._live_pools(spot, rooms, work, now), now)
        with self._lock:
            self._kept[key] = made
        return made

    def _live_pools(
        self,
        spot: Sequence[RankedOffer],
        rooms: Sequence[bool | None],
        work: WorkByGpu,
        now: datetime,
    ) -> list[LivePool]:
        pools = [item.offer.pool for item in spot]
        with self._runtime.begin() as uow:
            seen = uow.pool_experience.observations(now - PAST, now)
            usual = uow.pool_experience.usual_prices(pools, now - PAST, now)
        return [
            LivePool(
                pool=item.offer.pool,
                usual_usd=_usual(item.offer, usual.get(item.offer.pool)) / work.pace(item.offer),
                observations=seen.get(item.offer.pool, NO_OBSERVATIONS),
                has_room=has_room,
            )
            for item, has_room in zip(spot, rooms, strict=True)
        ]


def _planned(limits: Limits) -> float:
    """A restart to plan with: start-up in whole half minutes, so that jobs share their tables."""
    start_up = math.ceil(limits.start_up_seconds / _START_UP_STEP) * _START_UP_STEP
    return limits.restart_seconds - limits.start_up_seconds + start_up


def _spot_offers(
    considered: Sequence[RankedOffer], running_in: Collection[Pool]
) -> list[RankedOffer]:
    """The best pools that serve now or later, and those that the job runs in."""
    able = [item for item in considered if item.fits or item.verdict.passes_by_itself]
    chosen = able[:POOLS_MAX]
    here = [item for item in considered if item.offer.pool in running_in and item not in chosen]
    return [*chosen, *here]


def _has_room(item: RankedOffer, running_in: Collection[Pool]) -> bool | None:
    """None where only an attempt would tell. What the job runs in has had room for it."""
    if item.offer.pool in running_in:
        return True
    if not item.fits:
        return False
    return None if item.offer.available is None else True


def _usd(offer: Offer, restore: Restore | None = None) -> float:
    """$ per machine and hour by the clock."""
    return (offer.billed_microusd_per_hour + added_microusd_per_hour(restore, offer.pool)) / _USD


def _usual(offer: Offer, mean_microusd: int | None) -> float:
    mean = offer.price_microusd_per_hour if mean_microusd is None else mean_microusd
    extra = offer.cost_microusd_per_hour - offer.price_microusd_per_hour
    return (mean + extra) * offer.billing_speed / _USD
