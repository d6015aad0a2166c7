"""What a deployment's own machines and launches showed of pools, as states in even steps of time.

A pool had machines while one of ours lived there and when a launch was answered with one; it had
none when one of ours was taken, and when a launch was refused for want of capacity. Of all other
times nothing is known. Here: that reading of the past. Not here: hazards learned from it
(`pool_hazards`), or counting machines (`app.storage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

UP, DOWN, UNKNOWN = 1, 0, -1


@dataclass(frozen=True)
class AvailabilityObservations:
    """One pool. had: spans (from, to) in which machines lived; lacked: instants without any."""

    had: tuple[tuple[datetime, datetime], ...] = ()
    lacked: tuple[datetime, ...] = ()

    @property
    def since(self) -> datetime | None:
        """The first thing that was seen."""
        return min((*(span[0] for span in self.had), *self.lacked), default=None)


NO_OBSERVATIONS = AvailabilityObservations()


def states(
    observations: AvailabilityObservations, end: datetime, step: timedelta, steps: int
) -> list[int]:
    """The state at the end of each of `steps` equal steps of time, the last ending at `end`.

    UP, DOWN or UNKNOWN; what was seen last within a step holds. Nothing after `end` counts.
    """
    begin = end - step * steps
    found = [UNKNOWN] * steps
    seen_at: list[datetime | None] = [None] * steps

    def note(place: int, at: datetime, state: int) -> None:
        before = seen_at[place]
        if before is None or at > before or (at == before and state == DOWN):
            found[place], seen_at[place] = state, at

    for from_at, to_at in observations.had:
        first, last = max(from_at, begin), min(to_at, end)
        if first > last:
            continue
        for place in range(_step_of(first, begin, step), min(_step_of(last, begin, step), steps)):
            note(place, begin + step * (place + 1), UP)
        if last > begin:
            note(min(_step_of(last, begin, step), steps - 1), last, UP)
    for at in observations.lacked:
        if begin <= at <= end:
            note(min(_step_of(at, begin, step), steps - 1), at, DOWN)
    return found


def _step_of(at: datetime, begin: datetime, step: timedelta) -> int:
    """The step that holds an instant; one on an edge belongs to the step that begins there."""
    return int((at - begin) // step)
