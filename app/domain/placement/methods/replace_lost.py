"""What the next attempt will lack is requested before the present one has ended.

Only beside the machines that stay: a gang lives in one place. When nothing fits, the next claim
decides. Not here: the open places of a gang that forms (`fill_places`), or how a loss is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.placement.decision import Abandon, CutOver, Replace
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.methods.supply import Supply


@dataclass(frozen=True)
class LackingState:
    """The gang of the next attempt, and the machines that it can count on.

    move: what becomes of a move that is under way. survivors: how many machines it has, coming or
    here. supply: None where nothing is missing, or the place of the survivors is not known yet.
    can_do_without: the job is not stopped where no budget covers the machines. both_affordable:
    they are requested only where the budgets cover both gangs for a while.
    """

    gang: GangNeed
    survivors: int
    move: CutOver | Abandon | None = None
    supply: Supply | None = None
    can_do_without: bool = False
    both_affordable: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all machines are coming or here."""
        return self.survivors >= self.gang.node_count


def replace_lost(state: LackingState) -> Replace | None:
    """The request; None where nothing is missing or can be had, and no move has ended."""
    nothing = None if state.move is None else Replace(state.gang, state.move)
    supply, missing = state.supply, state.gang.node_count - state.survivors
    if supply is None or state.is_whole:
        return nothing
    if state.survivors:
        more = supply.more(missing, state.survivors)
        least = supply.least(more.count, state.survivors)
    else:
        # A whole gang beside one that still trains, as before a deadline: no smaller than that.
        more, least = supply.exactly(missing), missing
    if not more.bids:
        return nothing
    dearest = max(more.bids, key=lambda offer: offer.cost_microusd_per_hour)
    if state.both_affordable and not supply.headroom.covers_both([dearest] * more.count):
        return nothing
    request, check = supply.request(more, least)
    if request is not None:
        return Replace(state.gang, state.move, request, some_stay=state.survivors > 0)
    if state.can_do_without or supply.is_enough(state.survivors):
        return nothing
    return Replace(state.gang, state.move, over_budget=check)
