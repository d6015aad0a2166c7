"""Which of a job's machines its next attempt forms over: all of one market and of one place.

Lives here: that choice, whose machines are whose during a move, and what becomes of a move when one
of the old machines is lost. Not here: which places are offered (`offer_book`), or who gets which
rank (`assign_instances`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from app.domain.lifecycle.entities import Instance
from app.domain.market.offer import Market
from app.domain.placement.decision import Abandon, AbandonReason, CutOver, Transition
from app.domain.placement.gang_need import GangNeed
from app.domain.placement.placement import PlacementDomain


@dataclass(frozen=True, slots=True)
class MoveUnderWay:
    """A move to another pool. is_on: the next attempt forms over the new machines alone."""

    launch_id: UUID
    is_on: bool


def machines_for(
    usable: Iterable[Instance],
    gang: GangNeed,
    move: MoveUnderWay | None,
    members: Collection[UUID] = (),
) -> list[Instance]:
    """The healthy machines that an attempt of this gang may form over, coming or here.

    move: while it is under way they are the old ones, once it is on the new ones. members: of the
    live attempt; they say which place counts, where machines are in several.
    """
    fit = [one for one in usable if one.market is gang.market and not one.suspect]
    return _of_one_place(_counted_on(fit, move), members)


def place_of(machines: Iterable[Instance]) -> PlacementDomain | None:
    """Where the gang's machines are; None where it has none whose place is known."""
    pools = sorted(one.pool for one in machines if one.pool is not None)
    return PlacementDomain.of(pools[0]) if pools else None


def is_place_open(machines: Sequence[Instance]) -> bool:
    """Machines are on their way and no place is known yet: asking for more could split the gang."""
    return bool(machines) and place_of(machines) is None


def end_of_move(
    machines: Iterable[Instance], gang: GangNeed, move: MoveUnderWay | None, *, trains: bool
) -> CutOver | Abandon | None:
    """What becomes of a move when the gang lacks machines; None: it goes on, or there is none.

    machines: those that can be counted on, in any market. In another market than the move was begun
    in, as before a deadline, nobody needs its machines. If they are all there, they replace what
    was lost. trains: the attempt goes on, so that what it lacks is for another reason.
    """
    if move is None:
        return None
    if gang.market is not Market.SPOT:
        return Abandon(Transition.MOVE, AbandonReason.LEAVES_SPOT)
    if trains:
        return None
    new = sum(one.launch_id == move.launch_id for one in machines)
    if new >= gang.node_count:
        return CutOver(Transition.MOVE)
    return Abandon(Transition.MOVE, AbandonReason.INCOMPLETE)


def _counted_on(fit: list[Instance], move: MoveUnderWay | None) -> list[Instance]:
    if move is None:
        return fit
    new = [one for one in fit if one.launch_id == move.launch_id]
    if new and move.is_on:
        return new
    return [one for one in fit if one.launch_id != move.launch_id]


def _of_one_place(fit: list[Instance], members: Collection[UUID]) -> list[Instance]:
    """Those beside the members; without any, where most are.

    Machines of two places are there only where one was found that no row knew of.
    """
    pools = {one.id: one.pool for one in fit if one.pool is not None}
    sizes = Counter(PlacementDomain.of(pool) for pool in pools.values())
    if len(sizes) <= 1:
        return fit
    home = PlacementDomain.of(
        min(
            (one_id not in members, -sizes[PlacementDomain.of(pool)], pool)
            for one_id, pool in pools.items()
        )[2]
    )
    return [one for one in fit if one.pool is None or PlacementDomain.of(one.pool) == home]
