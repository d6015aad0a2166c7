"""Where more machines of a gang may come from, and whether the budgets cover them.

Lives here: how many machines are asked for, of which offers. Not here: for which gap
(`replace_lost`, `fill_places`), or the places of a claimed gang (`place_claimed`).
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.billing.budget import BudgetCheck
from app.domain.billing.headroom import Headroom
from app.domain.market.offer import Offer
from app.domain.placement.decision import MachineRequest
from app.domain.placement.gang_size import size_options
from app.domain.placement.methods.offer_book import OfferBook
from app.domain.placement.methods.size_question import SizeTerms, size_of_offers
from app.domain.placement.placement import RankedOffer, bids_for_best_region


@dataclass(frozen=True)
class MoreMachines:
    """How many more machines a gang may get, and where.

    bids: offers that one launch may take them from; none where none fits. considered: all offers,
    judged for so many.
    """

    count: int
    bids: tuple[Offer, ...]
    considered: tuple[RankedOffer, ...]


@dataclass(frozen=True)
class Supply:
    """gang: how many machines it has in all. can_go_back: if no budget covers machines of its
    market, the job has another way on, and is not stopped.
    """

    gang: int
    offers: OfferBook
    headroom: Headroom
    terms: SizeTerms
    can_go_back: bool = False

    def exactly(self, count: int) -> MoreMachines:
        """Offers for so many more machines, no fewer."""
        considered = self.offers.judge(count, self.gang)
        return MoreMachines(count, bids_for_best_region(considered), considered)

    def more(self, missing: int, at_hand: int) -> MoreMachines:
        """Offers for the missing machines, and for how many: an elastic gang takes what there is.

        at_hand: machines that the gang has already; without any it is asked for as a whole, in the
        size that suits it.
        """
        whole, least = self.exactly(missing), self.least(missing, at_hand)
        if whole.bids or least == missing:
            return whole
        judged = self.offers.judge(least, self.gang)
        if at_hand == 0:
            choice = size_of_offers(judged, range(least, missing + 1), self.terms, self.gang)
            count = 0 if choice is None else choice.count
        else:
            count = most_that_fit(judged, range(least, missing))
        return self.exactly(count) if count else whole

    def least(self, missing: int, at_hand: int) -> int:
        """How many of the missing machines must come for the gang to begin at all."""
        return max(1, min(missing, self.terms.nodes.least - at_hand))

    def is_enough(self, at_hand: int) -> bool:
        """Whether the job goes on where no budget covers any more machines."""
        return at_hand >= self.terms.nodes.least or self.can_go_back

    def request(self, more: MoreMachines, least: int) -> tuple[MachineRequest | None, BudgetCheck]:
        """The request that the budgets cover, None where they cover none; and what they say."""
        covered = self.headroom.bids_covered(more.bids, more.count)
        if not covered.bids:
            return None, covered.check
        held = covered.reserved_microusd
        request = MachineRequest(more.count, least, covered.bids, more.considered, held)
        return request, covered.check


def most_that_fit(considered: tuple[RankedOffer, ...], sizes: range) -> int:
    """The largest number of machines that one offer has room for; 0 where none has."""
    return max((option.count for option in size_options(considered, sizes)), default=0)
