"""Where the machines of a claimed job's gang come from, how many it gets, and the money for them.

Lives here: the order of places (beside the survivors, with fewer, elsewhere as a whole), and the
sizes and machines that are tried until the budgets cover one. The job stays as it is meanwhile:
what is found is a value; `take_places` and `claim_jobs` act on it. Not here: the verdicts on offers
(`fill_gang.offers_for`), or the arithmetic of budgets (`gang.reserve_budget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.billing.budget import BudgetCheck
from app.domain.lifecycle.entities import Budget, Instance
from app.domain.market.offer import Market, Offer
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_size import SizeChoice, size_options
from app.domain.placement.placement import RankedOffer, bids_for_best_region, work_alike
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.fill_gang import candidates, least_more, offers_for
from app.orchestration.gang.release_order import order_release
from app.orchestration.gang.reserve_budget import check_and_reserve, reserve_for_bids
from app.orchestration.placement.choose_gang_size import choose_gang_size, set_size
from app.orchestration.placement.decision_log import Reasons
from app.orchestration.placement.price_restores import restore_of
from app.orchestration.placement.shortlist import Shortlist


@dataclass(frozen=True)
class Places:
    """Offers for what a gang lacks, judged; none are needed where its machines are at hand.

    size: what an elastic gang gets; None where it keeps its own. given_up: survivors that the gang
    leaves, as it moves as a whole.
    """

    considered: tuple[RankedOffer, ...]
    size: SizeChoice | None = None
    given_up: tuple[Instance, ...] = ()

    def gang(self, gang: GangNeed) -> GangNeed:
        """The gang in its new size."""
        return gang if self.size is None else replace(gang, node_count=self.size.count)


def find_places(
    aggregate: JobAggregate,
    gang: GangNeed,
    among: Shortlist,
    budgets: Sequence[Budget],
    limits: Limits,
) -> Places:
    """Places for the gang: beside the machines that it has, with fewer, or elsewhere."""
    nodes, survivors = aggregate.spec.nodes, candidates(aggregate, gang)
    if not survivors:
        return _whole(aggregate, gang, among, budgets, limits)
    missing = gang.node_count - len(survivors)
    if missing <= 0:
        return Places(())
    beside = offers_for(aggregate, gang, missing, limits, among=among)
    if bids_for_best_region(beside):
        return Places(beside)
    least = least_more(aggregate, missing, len(survivors))
    judged = offers_for(aggregate, gang, least, limits, among=among)
    fewer = max((o.count for o in size_options(judged, range(least, missing))), default=0)
    if fewer or len(survivors) >= nodes.least:
        why = "no more machines are available next to the current ones"
        size = SizeChoice(len(survivors) + fewer, why)
        if not fewer:
            return Places((), size)
        smaller = replace(gang, node_count=size.count)
        return Places(offers_for(aggregate, smaller, fewer, limits, among=among), size)
    elsewhere = _whole(aggregate, gang, among, budgets, limits)
    if not bids_for_best_region(elsewhere.considered):
        return replace(elsewhere, considered=beside)
    return replace(elsewhere, given_up=tuple(survivors))


def take_places(aggregate: JobAggregate, places: Places) -> None:
    """Give the gang its size, and give back the machines that it leaves."""
    if places.size is not None:
        set_size(aggregate, places.size.count, places.size.why)
    order_release(aggregate, places.given_up, "the job moves to another zone")


def places_for_smaller(
    aggregate: JobAggregate, smaller: GangNeed, among: Shortlist, limits: Limits
) -> tuple[RankedOffer, ...] | None:
    """Offers for a gang that the budgets may bear, where they bear no larger one.

    None where it is smaller than the spec allows, or than the machines at hand, which are not given
    up for it.
    """
    at_hand = len(candidates(aggregate, smaller))
    missing = smaller.node_count - at_hand
    if smaller.node_count < aggregate.spec.nodes.least or missing < 0:
        return None
    return offers_for(aggregate, smaller, missing, limits, among=among) if missing else ()


def _whole(
    aggregate: JobAggregate,
    gang: GangNeed,
    among: Shortlist,
    budgets: Sequence[Budget],
    limits: Limits,
) -> Places:
    """Offers for a whole gang, wherever its machines are now; an elastic one gets its size."""
    nodes = aggregate.spec.nodes
    judged = offers_for(aggregate, gang, nodes.least, limits, anywhere=True, among=among)
    if not nodes.is_elastic:
        return Places(judged)
    size = choose_gang_size(aggregate, gang, judged, limits, budgets, among.speeds)
    if size is None or size.count == nodes.least:
        return Places(judged, size)
    sized = replace(gang, node_count=size.count)
    return Places(
        offers_for(aggregate, sized, size.count, limits, anywhere=True, among=among), size
    )


@dataclass(frozen=True)
class GangReservation:
    """What the budgets say of a gang, and the bids that they bear; reasons: its offers."""

    verdict: BudgetCheck
    gang: GangNeed
    reasons: Reasons
    bids: Sequence[Offer] = ()


def reserve_gang(
    aggregate: JobAggregate,
    gang: GangNeed,
    budgets: Sequence[Budget],
    reasons: Reasons,
    among: Shortlist,
    limits: Limits,
) -> GangReservation:
    """Hold money for the gang, or else for the largest smaller one that the budgets bear.

    reasons: the offers for what it lacks. Where they bear none, the gang is the one asked about.
    """
    tried, found = gang, reasons
    while True:
        bids = bids_for_best_region(found.considered)
        verdict, affordable = _reserve(aggregate, budgets, bids, found.count, limits)
        if verdict.yes:
            return GangReservation(verdict, tried, found, affordable)
        tried = replace(tried, node_count=tried.node_count - 1)
        offers = places_for_smaller(aggregate, tried, among, limits)
        if offers is None:
            return GangReservation(verdict, gang, reasons)
        missing = tried.node_count - len(candidates(aggregate, tried))
        found = replace(found, considered=offers, count=missing)


def reserve_at_any_pace(
    aggregate: JobAggregate,
    gang: GangNeed,
    budgets: Sequence[Budget],
    reasons: Reasons,
    among: Shortlist,
    limits: Limits,
) -> tuple[Places, GangReservation] | None:
    """The same with machines that would miss the deadline, where late is better than not at all.

    None where it is not, or no budget bears those either.
    """
    if not _may_be_late(aggregate, gang):
        return None
    of_any = replace(among, any_pace=True)
    places = find_places(aggregate, gang, of_any, budgets, limits)
    sized = places.gang(gang)
    offered = replace(reasons, considered=places.considered, count=sized.node_count)
    found = reserve_gang(aggregate, sized, budgets, offered, of_any, limits)
    return (places, found) if found.verdict.yes else None


def _may_be_late(aggregate: JobAggregate, gang: GangNeed) -> bool:
    """Whether slower machines than those in time are better than none."""
    asked = gang.market is Market.ON_DEMAND and not candidates(aggregate, gang)
    spec = aggregate.spec
    return asked and spec.on_deadline == "finish" and not work_alike(spec)


def _reserve(
    aggregate: JobAggregate,
    budgets: Sequence[Budget],
    bids: Sequence[Offer],
    missing: int,
    limits: Limits,
) -> tuple[BudgetCheck, Sequence[Offer]]:
    """Hold money for what the launch may end in, and leave out what is too dear."""
    uow, job, living, now = aggregate.uow, aggregate.job, aggregate.living(), aggregate.now
    if missing:
        return reserve_for_bids(
            uow, budgets, job.id, bids, missing, living, limits, now,
            restore=restore_of(aggregate),
        )  # fmt: skip
    return check_and_reserve(uow, budgets, job.id, [], living, limits, now), ()
