"""Whether spot may be used before a deadline, and whether a return to it is allowed and repays.

Lives here: the room that spot needs before the last safe moment, what keeps a job from going to and
fro, and what a return must save. Not here: which market costs less (`live_placement`), or the last
safe moment itself (`deadline_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from app.domain.deadline.live_choice import LiveChoice
from app.domain.units.durations import HOUR_SECONDS

_USD = 1_000_000


@dataclass(frozen=True, slots=True)
class SpotRoom:
    """The time that is left for spot.

    last_safe_at: None without a deadline, or while the work is not known. restart_seconds: from a
    request of machines to the first step. work_seconds: that are left.
    """

    now: datetime
    last_safe_at: datetime | None
    restart_seconds: float
    work_seconds: float

    def lasts(self, seconds: float) -> bool:
        """Whether the last safe moment is further off."""
        last = self.last_safe_at
        return last is not None and self.now + timedelta(seconds=seconds) < last


@dataclass(frozen=True, slots=True)
class ReturnTerms:
    """When a job that left spot may go back.

    rest_seconds: it has been in its market for so long. room_share: room for so much of the work
    that is left. saving_share: of what staying would cost, and saving_microusd: what a return must
    save. beside_seconds: how long both gangs are paid, where one trains.
    """

    rest_seconds: float
    room_share: float
    saving_share: float
    saving_microusd: int
    beside_seconds: float


@dataclass(frozen=True)
class OnDemandStay:
    """On-demand machines to the end: what each costs per hour, how many, and the work left on them.

    trains: they are there, and are paid on until the spot machines have registered and they have
    saved.
    """

    on_demand_usd: float
    gang: int
    work_seconds: float
    trains: bool


def spot_is_safe(room: SpotRoom) -> bool:
    """Whether spot may be tried and, if it fails, still be left before the last safe moment."""
    return room.lasts(2 * room.restart_seconds)


def may_return(
    room: SpotRoom, terms: ReturnTerms, changed_at: datetime | None, *, fruitless: bool
) -> bool:
    """Whether a job that left spot may go back: with room, not soon after it left, and not before
    it came to a checkpoint where spot let it come to none.

    changed_at: since when it is in its market.
    """
    rest = timedelta(seconds=terms.rest_seconds)
    rested = changed_at is None or not changed_at <= room.now < changed_at + rest
    return not fruitless and rested and room.lasts(_return_seconds(room, terms))


def may_still_return(room: SpotRoom, terms: ReturnTerms) -> bool:
    """Whether spot machines that were requested are waited for still.

    Half of the room is theirs to start in. If all of it were asked for, they would be given back
    and requested again, look after look.
    """
    return room.lasts(_return_seconds(room, terms) / 2)


def _return_seconds(room: SpotRoom, terms: ReturnTerms) -> float:
    """What is left to do may be off by a tenth: a return on the edge would be undone at once."""
    return max(2 * room.restart_seconds, terms.room_share * room.work_seconds)


def return_repays(choice: LiveChoice, stay: OnDemandStay, terms: ReturnTerms) -> bool:
    """Whether going back to spot saves enough of what staying on-demand would cost to the end.

    The choice's own figure for on-demand counts on a later return, which is the question here; the
    one for spot counts with a restart.
    """
    hourly = stay.on_demand_usd * stay.gang / HOUR_SECONDS
    twice = terms.beside_seconds if stay.trains else 0.0
    stays = hourly * stay.work_seconds
    goes = min(choice.spot, choice.wait) * stay.gang + hourly * twice
    enough = max(terms.saving_share * stays, terms.saving_microusd / _USD)
    return stays - goes >= enough
