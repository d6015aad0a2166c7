"""The heap of what is to happen, and the loop that jumps from one instant to the next.

Two kinds of things are due: events in the heap, and controllers, which say for themselves when
they will have work (`Ticker`). The loop takes the earlier and never ticks an empty controller.
Not here: what the events do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from app.simulation.engine.virtual_clock import VirtualClock, microseconds

Action = Callable[[], None]


@dataclass(order=True)
class Event:
    """One thing to happen; `cancelled` ones are passed over."""

    at_us: int
    number: int
    action: Action = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """It will not happen."""
        self.cancelled = True


class Ticker(Protocol):
    """Something that knows by itself when it is due."""

    def next_us(self) -> int | None:
        """The instant of its next tick; None when nothing waits."""
        ...

    def tick(self) -> None:
        """Do what is due; the clock shows `next_us`."""
        ...


class EventLoop:
    """Virtual time's motor. Events at one instant happen in the order they were planned."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.happened = 0
        self.tickers: list[Ticker] = []
        self.after_each: list[Action] = []
        self._heap: list[Event] = []
        self._number = 0

    def at(self, at_us: int, action: Action) -> Event:
        """Plan an event; an instant that has passed means now."""
        self._number += 1
        event = Event(max(at_us, self.clock.true_us), self._number, action)
        heapq.heappush(self._heap, event)
        return event

    def after(self, seconds: float, action: Action) -> Event:
        """Plan an event so many virtual seconds from now."""
        return self.at(self.clock.true_us + microseconds(max(0.0, seconds)), action)

    def run(self, until_us: int, stop: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to `until_us`, or until `stop` says so after an event."""
        while (at_us := self._next_us()) is not None and at_us <= until_us:
            self.clock.advance_to(max(at_us, self.clock.true_us))
            self._happen(at_us)
            self.happened += 1
            for check in self.after_each:
                check()
            if stop is not None and stop():
                return
        self.clock.advance_to(max(until_us, self.clock.true_us))

    def _next_us(self) -> int | None:
        while self._heap and self._heap[0].cancelled:
            heapq.heappop(self._heap)
        due = [self._heap[0].at_us] if self._heap else []
        due += [at for ticker in self.tickers if (at := ticker.next_us()) is not None]
        return min(due, default=None)

    def _happen(self, at_us: int) -> None:
        """One event; planned ones come before ticks of the same instant."""
        if self._heap and self._heap[0].at_us <= at_us:
            heapq.heappop(self._heap).action()
            return
        next(ticker for ticker in self.tickers if ticker.next_us() == at_us).tick()
