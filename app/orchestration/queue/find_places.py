"""Where the machines of a job's next gang can come from, and how many an elastic one gets.

Lives here: the order of MECHANICS: beside the survivors, with fewer, elsewhere as a whole. Finding
changes nothing; `take_places` acts on what was found. Not here: the verdicts on offers
(`fill_gang.offers_for`), or the attempt that follows (`claim_jobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.domain.lifecycle.entities import Budget, Instance
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_options import size_options
from app.domain.placement.gang_size import SizeChoice
from app.domain.placement.placement import RankedOffer, bids_for_best_region
from app.orchestration.frame.aggregate import JobAggregate
from app.orchestration.frame.runtime import Limits
from app.orchestration.gang.fill_gang import candidates, least_more, offers_for
from app.orchestration.gang.release_order import order_release
from app.orchestration.placement.choose_gang_size import choose_gang_size, set_size
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
