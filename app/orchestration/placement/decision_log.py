"""Keep what was decided about a job's machines, with its reasons, in the transaction that acts.

Lives here: the record of a claim, of a wait and of a move. Not here: the decisions, or the shape
that is stored (`app.domain.placement.placement_decision`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.domain.deadline.deadline_policy import StartTimes, last_safe_moment
from app.domain.deadline.live_choice import LiveChoice
from app.domain.deadline.policy_state import PoolRow
from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement import Need, RankedOffer, work_alike
from app.domain.placement.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    PoolVerdict,
    Unblock,
)
from app.domain.placement.placement_reasons import (
    ASKED_AS_WELL,
    PlacementOutcome,
    compared,
    pool_verdicts,
    slack_seconds,
    unblocked_by,
)
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput
from app.domain.units.durations import billed_as
from app.domain.units.money import format_usd
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.estimates.work_by_gpu import ONE_GPU, WorkByGpu, left_of, told_for
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.queue_need import queue_need

_ZONES_TOLD = 3
_USD = 1_000_000
_HAZARD_TOLD_RATIO = 1.5
"""A hazard that the choice counts with is told where it is so many times another."""


@dataclass(frozen=True)
class Reason:
    """What was decided and why: a stable word, and the sentence for people."""

    verdict: DecisionVerdict
    word: str
    sentence: str


@dataclass(frozen=True)
class Reasons:
    """Offers for `count` machines, judged, and what a deadline made of them, if it was asked.

    speeds: those that the offers were judged with, where several kinds of machine are accepted.
    work: how the work was counted for the choice.
    """

    considered: Sequence[RankedOffer] = ()
    count: int = 1
    choice: LiveChoice | None = None
    speeds: GpuThroughput = NOTHING_MEASURED
    work: WorkByGpu = ONE_GPU

    @property
    def billing_speed(self) -> int:
        """The most seconds that a second is billed as in these pools."""
        return max((one.offer.billing_speed for one in self.considered), default=1)


NO_REASONS = Reasons()


def claim_reason(
    aggregate: JobAggregate, bids: Sequence[Offer], choice: LiveChoice | None = None
) -> Reason:
    """Why a claim took what it took; choice: what a deadline made of it, if it was asked."""
    gang = aggregate.job.node_count
    if not bids:
        text = f"Keeping the {'current machine' if gang == 1 else f'{gang} current machines'}."
        return Reason(DecisionVerdict.STAY, "machines_at_hand", text)
    where = pool_words([offer.pool for offer in bids])
    if aggregate.job.market_mode is Market.ON_DEMAND:
        text = f"Requesting on-demand machines in {where}, the cheapest that fit."
        return Reason(DecisionVerdict.ON_DEMAND, "on_demand", text)
    best = "cheapest pool" if len(bids) == 1 else "cheapest pools"
    text = f"Requesting spot machines in {where}, the {best} for this job."
    if choice is not None and choice.wait < choice.spot:
        spot, wait = (format_usd(round(one * gang * _USD)) for one in (choice.spot, choice.wait))
        billed = billed_as(max(offer.billing_speed for offer in bids))
        text += (
            f" They are expected to cost {spot} to the end, waiting {wait}{billed}: with so little "
            "work left, that saving is not worth the risk that the pool is full by then."
        )
    return Reason(DecisionVerdict.SPOT, "cheapest_progress", text)


def record_decision(
    aggregate: JobAggregate,
    reason: Reason,
    limits: Limits,
    reasons: Reasons = NO_REASONS,
    chosen: Collection[Offer] = (),
    gang: GangNeed | None = None,
) -> None:
    """Keep one decision.

    chosen: the offers that are asked for. gang: the one that it was made for; the job's own, where
    it is no other.
    """
    job, now, choice = aggregate.job, aggregate.now, reasons.choice
    gang = gang or aggregate.gang_need
    left = left_of(aggregate, gang)
    seconds = left.seconds
    need = replace(_need(aggregate, gang, max(1, reasons.count), limits), speeds=reasons.speeds)
    asked_for = {offer.pool for offer in chosen}
    told = None if need.alike else reasons.speeds.of(told_for(aggregate, left))
    outcome = PlacementOutcome(reasons.considered, need, asked_for, seconds, told)
    unblock: Unblock | None = None
    if reason.verdict is DecisionVerdict.WAIT:
        unblock = unblocked_by(outcome)
    last_safe_at = told_safe_until(aggregate, limits, seconds)
    if reasons.work.on_demand is not None:
        there = reasons.work.on_demand_seconds(aggregate, left)
        last_safe_at = safe_until(aggregate, limits, there)
    machines = gang.node_count
    decision = PlacementDecision(
        decided_at=now,
        verdict=reason.verdict,
        reason=reason.word,
        sentence=reason.sentence,
        fence=None if aggregate.attempt is None else aggregate.attempt.fence,
        node_count=machines,
        last_safe_at=last_safe_at,
        slack_seconds=slack_seconds(last_safe_at, now),
        work_left_seconds=seconds,
        wait_microusd=None if choice is None else _microusd(choice.wait, machines),
        spot_microusd=None if choice is None else _microusd(choice.spot, machines),
        on_demand_microusd=None if choice is None else _microusd(choice.on_demand, machines),
        unblock=unblock,
        pools=_with_beliefs(pool_verdicts(outcome), choice),
    )
    aggregate.uow.decisions.record(job.id, decision)


def safe_until(aggregate: JobAggregate, limits: Limits, work: float | None) -> datetime | None:
    """The last safe moment, as it stands; None without a deadline or an estimate."""
    deadline_at = aggregate.job.deadline_at
    if deadline_at is None or work is None:
        return None
    return last_safe_moment(deadline_at, round(work), start_times(aggregate, limits))


def start_times(aggregate: JobAggregate, limits: Limits) -> StartTimes:
    """What a start of this job's on-demand machines takes, at worst."""
    own = own_limits(aggregate, limits)
    return StartTimes(
        restore_seconds=round(own.restore_seconds),
        start_up_p95_seconds=round(own.start_up_p95_seconds),
        boot_p95_seconds=round(own.boot_p95_seconds),
        acquire_reserve_seconds=round(own.on_demand_acquire_seconds),
    )


def told_safe_until(aggregate: JobAggregate, limits: Limits, work: float | None) -> datetime | None:
    """The same to be told: where machines differ, as of the last look, which knows the kind."""
    if not work_alike(aggregate.spec):
        return aggregate.job.last_safe_at
    return safe_until(aggregate, limits, work)


def _need(aggregate: JobAggregate, gang: GangNeed, count: int, limits: Limits) -> Need:
    need = queue_need(aggregate.spec, gang.market, count, own_limits(aggregate, limits))
    return replace(need, restore=restore_of(aggregate), gang=gang.node_count)


def _microusd(usd: float, gang: int) -> int | None:
    return round(usd * gang * _USD) if math.isfinite(usd) else None


def _with_beliefs(
    pools: tuple[PoolVerdict, ...], choice: LiveChoice | None
) -> tuple[PoolVerdict, ...]:
    """With what the choice in time believed of each pool, and why it did or did not take it."""
    if choice is None:
        return compared(pools)
    rows = {row.pool: row for row in choice.rows}
    best = next((pool for pool in pools if pool.chosen), None)
    told = []
    for pool in pools:
        row = rows.get(pool.pool)
        if row is None:
            told.append(pool)
            continue
        why = f"{pool.why}; {_worth(pool, row, pool is best)}" if pool.fits else pool.why
        told.append(replace(pool, why=why))
    return tuple(told)


def _worth(pool: PoolVerdict, row: PoolRow, best: bool) -> str:
    """Why the choice did or did not take a pool that fits.

    It may count with another hazard than the pool's row tells and expected costs rest on.
    """
    why = row.why
    if pool.chosen and not row.chosen:
        why = "the best available now" if best else ASKED_AS_WELL
    known, seen = pool.hazard_per_hour or 0.0, row.hazard_per_hour
    if max(known, seen) < _HAZARD_TOLD_RATIO * min(known, seen):
        return why
    return (
        f"{why} (recently {seen:.2f} interruptions per hour of the whole pool; one new machine "
        f"there has {known:.2f} over its life)"
    )


def pool_words(pools: Sequence[Pool]) -> str:
    """`us-west-2a, us-west-2b and 3 more`."""
    zones = list(dict.fromkeys(pool.zone for pool in pools))
    shown, more = zones[:_ZONES_TOLD], len(zones) - _ZONES_TOLD
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
