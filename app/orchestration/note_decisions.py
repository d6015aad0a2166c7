"""Keep what was decided about a job's machines, with its reasons, in the transaction that acts.

Lives here: the record of a claim, of a wait and of a move. Not here: the decisions, or the shape
that is stored (`app.domain.placement_decision`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from app.domain.deadline_policy import last_safe_moment
from app.domain.kind_speed import NOTHING_MEASURED, KindSpeeds
from app.domain.offer import Market, Offer, Pool
from app.domain.placement import Considered, Need, work_alike
from app.domain.placement_decision import (
    DecisionVerdict,
    PlacementDecision,
    PoolVerdict,
    Unblock,
)
from app.domain.placement_reasons import (
    Outcome,
    compared,
    pool_verdicts,
    slack_seconds,
    unblocked_by,
)
from app.orchestration.aggregate import JobAggregate
from app.orchestration.estimate_remaining import work_left
from app.orchestration.price_restores import restore_of
from app.orchestration.runtime import Limits
from app.orchestration.shortlist import queue_need
from app.orchestration.work_on_kinds import told_for

if TYPE_CHECKING:
    from app.domain.live_placement import LiveChoice


_ZONES_TOLD = 3


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
    """

    considered: Sequence[Considered] = ()
    count: int = 1
    choice: LiveChoice | None = None
    speeds: KindSpeeds = NOTHING_MEASURED


NO_REASONS = Reasons()


def claim_reason(aggregate: JobAggregate, bids: Sequence[Offer]) -> Reason:
    """Why a claim took what it took."""
    gang = aggregate.job.node_count
    if not bids:
        text = f"The {gang} machines at hand are kept: nothing else is asked for."
        return Reason(DecisionVerdict.STAY, "machines_at_hand", text)
    where = pool_words([offer.pool for offer in bids])
    if aggregate.job.market_mode is Market.ON_DEMAND:
        text = f"On-demand machines are asked for in {where}: the cheapest that fit."
        return Reason(DecisionVerdict.ON_DEMAND, "on_demand", text)
    text = f"Spot machines are asked for in {where}: the cheapest progress that can be had."
    return Reason(DecisionVerdict.SPOT, "cheapest_progress", text)


def note_decision(
    aggregate: JobAggregate,
    reason: Reason,
    limits: Limits,
    reasons: Reasons = NO_REASONS,
    chosen: Collection[Offer] = (),
) -> None:
    """Keep one decision; chosen: the offers that are asked for."""
    job, now, choice = aggregate.job, aggregate.now, reasons.choice
    seconds = work_seconds(aggregate)
    need = replace(_need(aggregate, max(1, reasons.count), limits), speeds=reasons.speeds)
    asked_for = {offer.pool for offer in chosen}
    told = None if need.alike else reasons.speeds.of(told_for(aggregate))
    outcome = Outcome(reasons.considered, need, asked_for, seconds, told)
    unblock: Unblock | None = None
    if reason.verdict is DecisionVerdict.WAIT:
        unblock = unblocked_by(outcome, now)
    last_safe_at = told_safe_until(aggregate, limits, seconds)
    gang = job.node_count
    decision = PlacementDecision(
        decided_at=now,
        verdict=reason.verdict,
        reason=reason.word,
        sentence=reason.sentence,
        fence=None if aggregate.attempt is None else aggregate.attempt.fence,
        last_safe_at=last_safe_at,
        slack_seconds=slack_seconds(last_safe_at, now),
        work_left_seconds=seconds,
        wait_microusd=None if choice is None else _microusd(choice.wait, gang),
        spot_microusd=None if choice is None else _microusd(choice.spot, gang),
        on_demand_microusd=None if choice is None else _microusd(choice.on_demand, gang),
        unblock=unblock,
        pools=_with_beliefs(pool_verdicts(outcome), choice),
    )
    aggregate.uow.decisions.record(job.id, decision)


def work_seconds(aggregate: JobAggregate) -> float | None:
    """What is left of the job's work, from its newest reports; None where that is not known."""
    contacts = [aggregate.uow.instances.contact(m.instance_id) for m in aggregate.members]
    known = [contact for contact in contacts if contact is not None]
    return work_left(aggregate.job, aggregate.spec, aggregate.attempt, known).seconds


def safe_until(aggregate: JobAggregate, limits: Limits, work: float | None) -> datetime | None:
    """The last safe moment, as it stands; None without a deadline or an estimate."""
    deadline_at = aggregate.job.deadline_at
    if deadline_at is None or work is None:
        return None
    return last_safe_moment(
        deadline_at,
        round(work),
        round(limits.restore_seconds),
        round(limits.boot_p95_seconds),
        round(limits.on_demand_acquire_seconds),
    )


def told_safe_until(aggregate: JobAggregate, limits: Limits, work: float | None) -> datetime | None:
    """The same to be told: where machines differ, as of the last look, which knows the kind."""
    looked = aggregate.job.last_safe_at
    if looked is not None and not work_alike(aggregate.spec):
        return looked
    return safe_until(aggregate, limits, work)


def _need(aggregate: JobAggregate, count: int, limits: Limits) -> Need:
    need = queue_need(aggregate.spec, aggregate.job.market_mode, count, limits)
    return replace(need, restore=restore_of(aggregate), gang=aggregate.job.node_count)


def _microusd(usd: float, gang: int) -> int | None:
    return round(usd * gang * 1_000_000) if math.isfinite(usd) else None


def _with_beliefs(
    pools: tuple[PoolVerdict, ...], choice: LiveChoice | None
) -> tuple[PoolVerdict, ...]:
    """With what the choice in time believed of each pool, and why it did or did not take it."""
    if choice is None:
        return compared(pools)
    rows = {row.pool: row for row in choice.rows}
    told = []
    for pool in pools:
        row = rows.get(pool.pool)
        if row is None:
            told.append(pool)
            continue
        why = f"{pool.why}; {row.why}" if pool.fits else pool.why
        told.append(replace(pool, hazard_per_hour=round(row.hazard_per_hour, 3), why=why))
    return tuple(told)


def pool_words(pools: Sequence[Pool]) -> str:
    """`us-west-2a, us-west-2b and 3 more`."""
    zones = list(dict.fromkeys(pool.zone for pool in pools))
    shown, more = zones[:_ZONES_TOLD], len(zones) - _ZONES_TOLD
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
