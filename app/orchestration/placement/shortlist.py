"""What the queue asks the market for, and offers sorted out by it before a job is locked.

Lives here: the need with the deployment's times, and the sorting into what could serve a job and
what never could, which may take its time with thousands of pools. What is left is judged under the
lock (`fill_gang.offers_for`), in its present zone, market and cool-downs. Not here: the verdicts
themselves (`app.domain.placement.placement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.market.offer import Market, Offer, Pool
from app.domain.placement.placement import Need, RankedOffer, carries, inside, need_of, rank_offers
from app.domain.spec.job_spec import JobSpec
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput
from app.orchestration.frame.limits import Limits

Quoted = Sequence[tuple[Offer, datetime | None]]
"""Offers with the ends of their cool-downs."""


@dataclass(frozen=True)
class Shortlist:
    """able: what could serve now or later. others: the rest, with what they lack, best first.

    order: pools as a deadline makes them worth, best first; empty where cost alone decides.
    speeds: how fast kinds of machine do the job's work, where several are accepted. any_pace: also
    on-demand machines that would miss the deadline.
    """

    able: Quoted
    others: tuple[RankedOffer, ...]
    order: tuple[Pool, ...] = ()
    speeds: GpuThroughput = NOTHING_MEASURED
    any_pace: bool = False

    def judge(self, need: Need, now: datetime) -> tuple[RankedOffer, ...]:
        """Every offer with its verdict: those that fit first."""
        own = replace(need, order=self.order, speeds=self.speeds)
        return (*rank_offers(self.able, own, now), *self.others)


def queue_need(spec: JobSpec, market: Market, count: int, limits: Limits) -> Need:
    """As the queue asks for a whole gang: with the deployment's times, so that hazards count."""
    return replace(
        need_of(spec, market, count),
        quote_age_max=timedelta(seconds=limits.quote_age_max_seconds),
        restart_seconds=limits.restart_seconds,
    )


def shortlist(quoted: Quoted, need: Need, now: datetime) -> Shortlist:
    """Sort offers out by what no wait changes: market, place and machine."""
    able: list[tuple[Offer, datetime | None]] = []
    others: list[tuple[Offer, datetime | None]] = []
    for item in quoted:
        offer = item[0]
        serves = (
            offer.pool.market is need.market
            and inside(offer.pool, need.infra)
            and carries(offer, need)
        )
        (able if serves else others).append(item)
    return Shortlist(tuple(able), rank_offers(others, need, now))
