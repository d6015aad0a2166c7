"""What a notice does with a save that is on its way: a pure function of predicted times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.training.checkpoint import InFlight

# With so little left it is cheaper to have it than to lose what was written.
NEARLY_DONE = 0.1


@dataclass(frozen=True)
class LastSave:
    """The last save of an attempt, at ``step``, while ``flights`` are on their way: each rank's
    part of one. ``whole_seconds``: what a save takes; ``seconds_left``: until the machine's end;
    None for what nobody knows.
    """

    step: int
    final: bool
    flights: Sequence[InFlight]
    whole_seconds: float | None
    seconds_left: float | None

    @property
    def finish(self) -> bool:
        """Whether what is on its way is to be finished, not dropped."""
        if not self.flights or self.final or self.flight_step == self.step:
            return True
        if self._left <= NEARLY_DONE * self._whole and self.fits_after(self._left):
            return True
        # Only one of them can be saved: the newer one, unless only the older one can.
        return not self.fits_after(0.0) and self._left < self._whole

    @property
    def flight_step(self) -> int | None:
        """The step of what is on its way."""
        return self.flights[0].step if self.flights else None

    def fits_after(self, seconds: float) -> bool:
        """Whether a whole save still fits when so many seconds have gone by."""
        if not self.flights or self.seconds_left is None:
            return True
        return seconds + self._whole <= self.seconds_left

    @property
    def _left(self) -> float:
        return max(each.left_seconds for each in self.flights)

    @property
    def _whole(self) -> float:
        known = [each.whole_seconds for each in self.flights]
        return max([*known, *([self.whole_seconds] if self.whole_seconds is not None else [])])
