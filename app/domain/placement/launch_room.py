"""Which offers people let a launch be made of: they freeze projects and clouds, and set limits.

Lives here: passing over offers that would serve otherwise, and what is said of them. Not here:
freezes and limits themselves (`launch_limits`), or whether an offer serves (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from app.domain.launch_limits.freeze import Freeze, FreezeScope
from app.domain.launch_limits.limit_use import LimitUse
from app.domain.market.offer import Offer
from app.domain.placement.fit_verdict import FitVerdict, Obstacle
from app.domain.placement.placement import RankedOffer


@dataclass(frozen=True)
class LaunchRoom:
    """What people have set against new machines of a project."""

    project_id: UUID
    freezes: tuple[Freeze, ...] = ()
    limits: tuple[LimitUse, ...] = ()

    def obstacle(self, offer: Offer, count: int) -> Obstacle | None:
        """What keeps so many machines of this offer from being requested; None: nothing."""
        for freeze in self.freezes:
            if freeze.stops(self.project_id, offer.pool.provider):
                shared = freeze.place.scope is not FreezeScope.PROJECT
                return Obstacle(FitVerdict.FROZEN, freeze.sentence, freeze.remedy, shared)
        for limit in self.limits:
            asked = count * limit.per_machine(offer)
            if asked and limit.used + asked > limit.most:
                why, remedy = limit.refusal(asked), limit.remedy(asked)
                return Obstacle(FitVerdict.OVER_LIMIT, why, remedy, limit.project is None)
        return None

    def most(self, offer: Offer) -> int | None:
        """How many machines of this offer the limits have room for; None: as many as there are."""
        each = ((limit, limit.per_machine(offer)) for limit in self.limits)
        return min(
            (max(0, one.most - one.used) // held for one, held in each if held), default=None
        )


def within_room(
    considered: Sequence[RankedOffer], count: int, room: LaunchRoom
) -> tuple[RankedOffer, ...]:
    """The same, those that fit first: of them only those that nobody has set anything against.

    count: machines that are asked for. Those that stay have no more machines than the limits have
    room for, so that no larger gang is made of them.
    """
    judged = [_held_back(item, count, room) if item.fits else item for item in considered]
    return tuple(sorted(judged, key=lambda item: not item.fits))


def obstacle_of(considered: Iterable[RankedOffer]) -> Obstacle | None:
    """What stands in the way of a pool that would serve otherwise; None where nothing does.

    Of several, one of the job's own project: the other projects do not share it.
    """
    found = [item.obstacle for item in considered if item.obstacle is not None]
    return min(found, key=lambda obstacle: obstacle.of_deployment, default=None)


def _held_back(item: RankedOffer, count: int, room: LaunchRoom) -> RankedOffer:
    offer = item.offer
    obstacle = room.obstacle(offer, count)
    if obstacle is not None:
        return replace(item, verdict=obstacle.verdict, why=obstacle.sentence, obstacle=obstacle)
    most = room.most(offer)
    if most is None or (offer.available is not None and offer.available <= most):
        return item
    return replace(item, offer=replace(offer, available=most))
