"""Spaces the calls that start machines, as fast as a cloud's API has shown that it takes them.

Clouds count calls per account and region and refuse those above; what each allows is not told, so
the pace is learnt: every refusal makes it a tenth slower, every other answer a hundredth quicker.
Without it, hundreds of launches would refuse each other and wait ever longer between tries.
Not here: what a refused launch does next (`app.orchestration.instances.launch_instances`).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from app.ports.cloud_provider import ProviderError, RefusalKind

PACE_SECONDS_MAX: Final = 10.0
"""A call that would wait longer for its turn is refused here, and comes again later."""

_FIRST_PER_SECOND: Final = 10.0
_LEAST_PER_SECOND, _MOST_PER_SECOND = 0.5, 20.0
_SLOWER, _QUICKER = 0.9, 1.01


@dataclass
class _Place:
    per_second: float = _FIRST_PER_SECOND
    next_at: float = 0.0


class CallPace:
    """One pace for each place (a region); safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: defaultdict[str, _Place] = defaultdict(_Place)

    @contextmanager
    def turn(self, place: str) -> Iterator[None]:
        """Wait for the place's next turn, and learn from how the call in the block ends.

        Raises ProviderError `throttled` when the turn is too far away.
        """
        time.sleep(self._reserve(place))
        try:
            yield
        except ProviderError as error:
            self._learn(place, error.kind is RefusalKind.THROTTLED)
            raise
        self._learn(place, False)

    def per_second(self, place: str) -> float:
        """The pace now."""
        with self._lock:
            return self._places[place].per_second

    def _reserve(self, place: str) -> float:
        now = time.monotonic()
        with self._lock:
            one = self._places[place]
            at = max(now, one.next_at)
            if at - now > PACE_SECONDS_MAX:
                text = f"{place}: too many launches at a time; this one has its turn later"
                raise ProviderError(RefusalKind.THROTTLED, text)
            one.next_at = at + 1 / one.per_second
        return at - now

    def _learn(self, place: str, refused: bool) -> None:
        with self._lock:
            one = self._places[place]
            wanted = one.per_second * (_SLOWER if refused else _QUICKER)
            one.per_second = min(_MOST_PER_SECOND, max(_LEAST_PER_SECOND, wanted))
