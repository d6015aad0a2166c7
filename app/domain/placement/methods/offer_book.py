"""Offers that were read once, and are judged for any number of machines without another read.

Lives here: the sorting into offers that could serve a job and others, and the verdicts on both for
a gang in its present place, with its deadline and its patience. Not here: the verdicts themselves
(`placement`, `in_time`, `patience`), or reading offers (`read_offers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.domain.market.offer import Offer, Pool
from app.domain.placement.in_time import TimeLeft, in_time
from app.domain.placement.launch_room import LaunchRoom, within_room
from app.domain.placement.patience import Patience, patient
from app.domain.placement.placement import (
    Need,
    PlacementDomain,
    RankedOffer,
    carries,
    inside,
    rank_offers,
)
from app.domain.throughput.gpu_throughput import NOTHING_MEASURED, GpuThroughput
from app.domain.throughput.measured_run import GpuShape

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
    others: tuple[RankedOffer, ...] = ()
    order: tuple[Pool, ...] = ()
    speeds: GpuThroughput = NOTHING_MEASURED
    any_pace: bool = False

    def judge(self, need: Need, now: datetime) -> tuple[RankedOffer, ...]:
        """Every offer with its verdict: those that fit first."""
        own = replace(need, order=self.order, speeds=self.speeds)
        return (*rank_offers(self.able, own, now), *self.others)


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


@dataclass(frozen=True)
class GangWork:
    """What is left of a job.

    seconds_for: for a gang of so many machines; None while nobody knows. told_for: the kind of
    machine that those seconds are of; None where all accepted kinds are alike.
    """

    seconds_for: Callable[[int], int | None]
    told_for: GpuShape | None = None


@dataclass(frozen=True)
class OfferBook:
    """Offers for a gang.

    need: of one machine, in the gang's market. domain: where the gang's machines are; None where it
    has none. seconds_to_train: to the deadline, less a start; None where every kind of machine is
    quick enough. patience: None where the job has none; its work is filled in here. room: what
    people have set against new machines; None where they have set nothing.
    """

    offers: Shortlist
    need: Need
    now: datetime
    work: GangWork
    domain: PlacementDomain | None = None
    seconds_to_train: float | None = None
    patience: Patience | None = None
    room: LaunchRoom | None = None

    def judge(self, count: int, gang: int, *, anywhere: bool = False) -> tuple[RankedOffer, ...]:
        """Offers for `count` more machines of a gang of so many in all, those that fit first.

        Beside the machines that the gang has, or (`anywhere`) without them. On-demand machines are
        quick enough for the deadline, where any is.
        """
        domain = None if anywhere else self.domain
        whole = count if anywhere else gang
        need = replace(self.need, count=count, domain=domain, gang=whole, speeds=self.offers.speeds)
        judged = self.offers.judge(need, self.now)
        if self.room is not None:
            judged = within_room(judged, count, self.room)
        told_for, to_train = self.work.told_for, self.seconds_to_train
        if told_for is not None and to_train is not None and not self.offers.any_pace:
            work = self.work.seconds_for(gang)
            if work is not None:
                judged = in_time(judged, need.speeds, TimeLeft(to_train, work, told_for))
        if domain is not None or self.patience is None:
            return judged
        patience = replace(self.patience, work_seconds=self.work.seconds_for(gang))
        return patient(judged, need, patience, self.now)
