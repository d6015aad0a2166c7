"""Virtual time: it stands still until the event loop moves it, and it can be wrong on purpose.

Lives here: the true instant of the simulated world, the control plane's reading of it, and the
clock port. Not here: what happens when (`event_loop`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STARTS_AT = datetime(2031, 3, 3, 6, 0, tzinfo=UTC)
"""Where every simulation begins: an arbitrary Monday morning."""

_MICROSECOND = timedelta(microseconds=1)
MICROSECONDS = 1_000_000


def microseconds(seconds: float) -> int:
    """Whole microseconds of a duration in seconds."""
    return round(seconds * MICROSECONDS)


def instant(at_us: int) -> datetime:
    """Aware UTC from microseconds since 1970."""
    return EPOCH + at_us * _MICROSECOND


def since_epoch_us(at: datetime) -> int:
    """Microseconds since 1970 of an aware instant."""
    return (at - EPOCH) // _MICROSECOND


class VirtualClock:
    """Implements `app.ports.clock.Clock` for the control plane.

    true_us: microseconds since 1970 in the world; machines and clouds live by it. The control
    plane reads `now`, which is off by `error_us` while a fault has set one.
    """

    def __init__(self, starts_at: datetime = STARTS_AT) -> None:
        self.starts_us = since_epoch_us(starts_at)
        self.true_us = self.starts_us
        self.error_us = 0
        self.largest_error_seconds = 0.0

    def set_error(self, seconds: float) -> None:
        """From now on the control plane's clock is off by so much."""
        self.error_us = microseconds(seconds)
        self.largest_error_seconds = max(self.largest_error_seconds, abs(seconds))

    @property
    def true_now(self) -> datetime:
        """The instant in the world."""
        return instant(self.true_us)

    @property
    def elapsed_seconds(self) -> float:
        """Virtual seconds since the start."""
        return (self.true_us - self.starts_us) / MICROSECONDS

    def now(self) -> datetime:
        """What the control plane's clock shows."""
        return instant(self.true_us + self.error_us)

    def true_us_of(self, shown: datetime) -> int:
        """When, in the world, the control plane's clock shows this instant."""
        return since_epoch_us(shown) - self.error_us

    def sleep(self, seconds: float) -> None:
        """Refused: in a simulation waiting is an event, and a rule that sleeps is a bug."""
        raise RuntimeError(f"the control plane slept for {seconds} s; waiting is a row")

    def advance_to(self, at_us: int) -> None:
        """Move on; ValueError for an instant that has passed."""
        if at_us < self.true_us:
            raise ValueError(f"virtual time cannot run backwards, to {instant(at_us)}")
        self.true_us = at_us


class HostClock:
    """Implements `app.ports.clock.Clock` for the hosts of api and worker.

    apart_us: by how much it is ahead of the database's clock.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.apart_us = 0

    def now(self) -> datetime:
        """What the host's clock shows."""
        return self._clock.now() + self.apart_us * _MICROSECOND

    def sleep(self, seconds: float) -> None:
        """Refused, as by the database's clock."""
        self._clock.sleep(seconds)
