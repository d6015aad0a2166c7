"""Offers for a job's gang, read once, and the machines that the gang has already.

Lives here: what is read of a job before offers are judged. Not here: the verdicts
(`placement.methods.offer_book`), or what follows from them (`transitions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from app.domain.lifecycle.entities import Instance
from app.domain.market.offer import Market, Pool
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.launch_room import within_room
from app.domain.placement.methods.gang_machines import machines_for, place_of
from app.domain.placement.methods.offer_book import OfferBook, Shortlist
from app.domain.placement.no_offer import why_none_fits
from app.domain.placement.placement import (
    Need,
    PlacementDomain,
    RankedOffer,
    need_of,
    rank_offers,
)
from app.orchestration.estimates.attempt_measures import own_limits
from app.orchestration.estimates.work_by_gpu import gang_work, seconds_to_train, speeds_of
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.placement.market_and_size import patience_of
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.queue_need import queue_need
from app.orchestration.placement.read_launch_room import read_launch_room

RECENT_INTERRUPTION = timedelta(minutes=30)


def candidates(aggregate: JobAggregate, gang: GangNeed) -> list[Instance]:
    """Instances that an attempt of this gang may form over."""
    members = {member.instance_id for member in aggregate.members}
    return machines_for(aggregate.usable(), gang, aggregate.move, members)


def offers_for(
    aggregate: JobAggregate,
    gang: GangNeed,
    count: int,
    limits: Limits,
    *,
    anywhere: bool = False,
    among: Shortlist | None = None,
) -> tuple[RankedOffer, ...]:
    """Offers for `count` more machines: beside those the gang has, or (`anywhere`) without them."""
    domain = None if anywhere else place_of(candidates(aggregate, gang))
    book = offer_book(aggregate, gang, limits, domain, among=among)
    return book.judge(count, gang.node_count, anywhere=anywhere)


def offer_book(
    aggregate: JobAggregate,
    gang: GangNeed,
    limits: Limits,
    domain: PlacementDomain | None,
    *,
    among: Shortlist | None = None,
) -> OfferBook:
    """The offers for a gang whose machines are there; None: it has none.

    Pools where this job lately lost a machine, taken or broken, serve when no other fits. among:
    offers that were read before the job was locked; else they are read here, where the gang has
    machines only those beside them.
    """
    spec = aggregate.spec
    if among is None:
        offers = aggregate.uow.offers
        quoted = offers.all() if domain is None else offers.of(_pools_of(domain))
        among = Shortlist(quoted, speeds=speeds_of(aggregate))
    own = own_limits(aggregate, limits)
    need = replace(
        queue_need(spec, gang.market, 1, own),
        last_choice=_lately_interrupted(aggregate),
        restore=restore_of(aggregate),
    )
    return OfferBook(
        among,
        need,
        aggregate.now,
        gang_work(aggregate, gang),
        domain,
        seconds_to_train(aggregate, need, own),
        patience_of(aggregate, gang) if spec.patience_seconds else None,
        read_launch_room(aggregate),
    )


def no_offer_reason(
    aggregate: JobAggregate, gang: GangNeed, considered: Sequence[RankedOffer], count: int
) -> str:
    """One sentence on why `count` more machines cannot be rented now."""
    return why_none_fits(considered, _plain_need(aggregate, gang, count))


def why_none(aggregate: JobAggregate, gang: GangNeed, count: int, limits: Limits) -> str:
    """The same, looking at every offer there is."""
    age_max = timedelta(seconds=limits.quote_age_max_seconds)
    need = replace(_plain_need(aggregate, gang, count), quote_age_max=age_max)
    considered = rank_offers(aggregate.uow.offers.all(), need, aggregate.now)
    room = read_launch_room(aggregate)
    return why_none_fits(considered if room is None else within_room(considered, count, room), need)


def _plain_need(aggregate: JobAggregate, gang: GangNeed, count: int) -> Need:
    domain = place_of(candidates(aggregate, gang))
    return replace(need_of(aggregate.spec, gang.market, count), domain=domain)


def _lately_interrupted(aggregate: JobAggregate) -> frozenset[Pool]:
    if aggregate.job.next_fence == 1:
        return frozenset()  # it has had no machine yet
    since = aggregate.now - RECENT_INTERRUPTION
    return aggregate.uow.instances.interrupted_pools(aggregate.job.id, since)


def _pools_of(domain: PlacementDomain) -> list[Pool]:
    place = (domain.provider, domain.region, domain.zone, domain.instance_type)
    return [Pool(*place, market) for market in Market]
