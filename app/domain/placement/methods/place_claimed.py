"""Where the machines of a claimed job's gang come from, how many it gets, and the money for them.

Lives here: the order of places (beside the survivors, with fewer, elsewhere as a whole), and the
sizes and machines that are tried until the budgets cover one. Not here: the verdicts on offers
(`offer_book`), or the arithmetic of budgets (`headroom`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from app.domain.billing.headroom import CoveredBids
from app.domain.market.offer import Market
from app.domain.placement.decision import ClaimDecision, ClaimRule
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.gang_size import SizeChoice
from app.domain.placement.methods.offer_book import OfferBook
from app.domain.placement.methods.size_question import size_of_offers
from app.domain.placement.methods.supply import Supply, most_that_fit
from app.domain.placement.placement import RankedOffer, bids_for_best_region


@dataclass(frozen=True)
class ClaimState:
    """A job that is claimed, its market settled.

    survivors: its machines, coming or here, of one place; is_one_coming: the launch of one of them
    is not answered yet. claimed_with: how many machines there were before those that it no longer
    needs were given back. waiting_costs_less: by its deadline. may_go_back: whether a gang of so
    many may return to spot, of whose offers there are spot_offers. late_is_better: machines that
    miss the deadline are better than none.
    """

    gang: GangNeed
    survivors: tuple[UUID, ...]
    supply: Supply
    may_go_back: Callable[[int], bool]
    is_one_coming: bool = False
    claimed_with: int = 0
    waiting_costs_less: bool = False
    spot_offers: OfferBook | None = None
    late_is_better: bool = False


@dataclass(frozen=True)
class _Places:
    """Offers for what a gang lacks, judged; none are needed where its machines are at hand.

    gang: how many machines it has then. size: what an elastic gang gets; None where it keeps its
    own. given_up: survivors that the gang leaves, as it moves as a whole.
    """

    gang: int
    considered: tuple[RankedOffer, ...] = ()
    size: SizeChoice | None = None
    given_up: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class _Held:
    """What the budgets say of a gang of so many machines, of which so many are missing."""

    gang: int
    missing: int
    considered: tuple[RankedOffer, ...]
    covered: CoveredBids


def place_claimed(state: ClaimState) -> ClaimDecision:
    """Where it gets its machines, or why it waits."""
    places = _find_places(state, state.supply, state.gang.node_count)
    at_hand = 0 if places.given_up else len(state.survivors)
    missing, considered = max(0, places.gang - at_hand), places.considered
    size, given_up = places.size, places.given_up
    if missing and not bids_for_best_region(considered):
        least = max(1, state.supply.terms.nodes.least - state.claimed_with)
        return ClaimDecision(ClaimRule.NO_OFFER, size, given_up, considered, least)
    waits = ClaimDecision(ClaimRule.WAITING_COSTS_LESS, size, given_up, considered, missing)
    if state.waiting_costs_less:
        return waits
    held = _hold(state.supply, places.gang, at_hand, considered)
    if held.covered.check.yes:
        return _start(places, held)
    if state.spot_offers is not None and state.may_go_back(places.gang):
        spot = state.spot_offers.judge(places.gang, places.gang, anywhere=True)
        returns = replace(waits, rule=ClaimRule.RETURN_TO_SPOT)
        return replace(returns, considered=spot, missing=places.gang)
    late = _late(state, places.gang) if state.late_is_better and not at_hand else None
    if late is None:
        return replace(waits, rule=ClaimRule.OVER_BUDGET, over_budget=held.covered.check)
    return _start(places, late[1], late[0].size)


def _start(places: _Places, held: _Held, size: SizeChoice | None = None) -> ClaimDecision:
    """size: of machines that miss the deadline, where it is those."""
    smaller = SizeChoice(held.gang, "the budget allows no more machines")
    return ClaimDecision(
        ClaimRule.START,
        places.size,
        places.given_up,
        held.considered,
        held.missing,
        held.covered.bids,
        held.covered.reserved_microusd,
        (smaller,) if size is None else (size, smaller),
    )


def _find_places(state: ClaimState, supply: Supply, gang: int) -> _Places:
    """Places for the gang: beside the machines that it has, with fewer, or elsewhere."""
    offers, survivors = supply.offers, len(state.survivors)
    missing = gang - survivors
    if not survivors:
        return _whole(supply, gang)
    if missing <= 0:
        return _Places(gang)
    beside = offers.judge(missing, gang)
    if bids_for_best_region(beside):
        return _Places(gang, beside)
    least = supply.least(missing, survivors)
    fewer = most_that_fit(offers.judge(least, gang), range(least, missing))
    if fewer or survivors >= supply.terms.nodes.least:
        why = "no more machines are available next to the current ones"
        size = SizeChoice(survivors + fewer, why)
        considered = offers.judge(fewer, size.count) if fewer else ()
        return _Places(size.count, considered, size)
    if state.is_one_coming:
        return _Places(gang, beside)  # nobody is given up before its replacement's outcome
    elsewhere = _whole(supply, gang)
    if not bids_for_best_region(elsewhere.considered):
        return replace(elsewhere, considered=beside)
    return replace(elsewhere, given_up=state.survivors)


def _whole(supply: Supply, gang: int) -> _Places:
    """Offers for a whole gang, wherever its machines are now; an elastic one gets its size."""
    nodes, offers = supply.terms.nodes, supply.offers
    judged = offers.judge(nodes.least, gang, anywhere=True)
    if not nodes.is_elastic:
        return _Places(gang, judged)
    size = size_of_offers(judged, range(nodes.least, nodes.most + 1), supply.terms, gang)
    if size is None:
        return _Places(gang, judged)
    if size.count == nodes.least:
        return _Places(size.count, judged, size)
    return _Places(size.count, offers.judge(size.count, size.count, anywhere=True), size)


def _hold(supply: Supply, gang: int, at_hand: int, considered: tuple[RankedOffer, ...]) -> _Held:
    """Money for the gang, or else for the largest smaller one that the budgets cover.

    Machines at hand are not given up for it. Where the budgets cover none, the gang is the one
    asked about.
    """
    asked = tried = max(0, gang - at_hand)
    found = considered
    while True:
        covered = (
            supply.headroom.bids_covered(bids_for_best_region(found), tried)
            if tried
            else supply.headroom.nothing_more()
        )
        if covered.check.yes:
            size = gang if tried == asked else at_hand + tried
            return _Held(size, tried, found, covered)
        tried -= 1
        if tried < 0 or at_hand + tried < supply.terms.nodes.least:
            return _Held(gang, asked, considered, covered)
        found = supply.offers.judge(tried, at_hand + tried) if tried else ()


def _late(state: ClaimState, gang: int) -> tuple[_Places, _Held] | None:
    """The same with machines that would miss the deadline; None where no budget covers those."""
    if state.gang.market is not Market.ON_DEMAND:
        return None
    any_pace = replace(state.supply.offers.offers, any_pace=True)
    offers = replace(state.supply.offers, offers=any_pace)
    supply = replace(state.supply, offers=offers)
    places = _find_places(replace(state, survivors=()), supply, gang)
    held = _hold(supply, places.gang, 0, places.considered)
    return (places, held) if held.covered.check.yes else None
