"""Every open place of a forming gang gets a machine: one at hand, or one of another launch.

Not here: what the next attempt lacks while one trains (`replace_lost`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from app.domain.placement.decision import Fill, Shortage
from app.domain.placement.methods.supply import Supply


@dataclass(frozen=True)
class FormingState:
    """A gang that forms.

    node_count: places that it has, least: that it needs at least. members: machines with a place;
    idle: those at hand without one. is_place_open: machines are on their way, and nobody knows
    where. fenced_off: its number may be known to machines of lost rows. supply: None where nothing
    is missing, or nothing may be requested.
    """

    node_count: int
    least: int
    members: int
    idle: tuple[UUID, ...]
    is_place_open: bool = False
    fenced_off: bool = False
    launches_left: bool = True
    supply: Supply | None = None


def fill_places(state: FormingState) -> Fill:
    """Who gets a place, and what is requested for the others."""
    placed = state.idle[: state.node_count - state.members]
    at_hand = state.members + len(placed)
    missing = state.node_count - at_hand
    if missing <= 0 or state.is_place_open:
        return Fill(placed, state.node_count)
    goes_on = at_hand >= state.least
    if state.fenced_off:
        return Fill(placed, state.node_count, shortage=Shortage.FENCED_OFF)
    if not state.launches_left or state.supply is None:
        why = Shortage.TOO_MANY_LAUNCHES
        return Fill(placed, state.node_count, shortage=why, goes_on=goes_on)
    supply = state.supply
    more = supply.more(missing, at_hand)
    if not more.bids:
        return Fill(placed, state.node_count, shortage=Shortage.NO_OFFER, goes_on=goes_on)
    places = at_hand + more.count
    request, check = supply.request(more, supply.least(more.count, at_hand))
    if request is not None:
        if places < state.node_count:
            judged = supply.offers.judge(more.count, places)
            request = replace(request, considered=judged)
        return Fill(placed, places, request)
    if supply.is_enough(at_hand):
        return Fill(placed, places, shortage=Shortage.UNAFFORDABLE, goes_on=goes_on)
    return Fill(placed, places, over_budget=check)
