"""A machine's own clock: seconds since it runs, which may pass too fast or too slowly."""

from __future__ import annotations

from app.simulation.engine.virtual_clock import MICROSECONDS, VirtualClock, microseconds


class MachineClock:
    """CLOCK_BOOTTIME of one machine. Seconds in, seconds out; true instants are microseconds."""

    def __init__(self, clock: VirtualClock, running_us: int) -> None:
        self._clock = clock
        self._from_us, self._from_seconds, self._pace = running_us, 0.0, 1.0

    def seconds(self) -> float:
        """What it shows now."""
        passed = (self._clock.true_us - self._from_us) / MICROSECONDS
        return self._from_seconds + passed * self._pace

    def drift(self, pace: float) -> None:
        """From now on it counts so many seconds in one."""
        self._from_seconds, self._from_us = self.seconds(), self._clock.true_us
        self._pace = pace

    def true_us_at(self, seconds: float) -> int:
        """The instant in the world at which it will show this."""
        return self._from_us + microseconds((seconds - self._from_seconds) / self._pace)
