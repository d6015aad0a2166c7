"""What a schedule of faults needs of a fake cloud: its time, its mishaps, its own books.

Here: the shape, and the time that only a schedule moves. Not here: either cloud (`scripted_aws`,
`scripted_gce`), or the schedule (`fault_schedule`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from app.ports.cloud_provider import CloudProvider
from app.ports.price_source import PriceSource
from app.simulation.engine.seeded_entropy import Dice
from app.simulation.engine.virtual_clock import since_epoch_us

STARTS_AT = datetime(2027, 3, 1, 6, 0, tzinfo=UTC)
"""Where every schedule begins, so that equal seeds have equal ids: an arbitrary Monday."""

GPUS = ("A10G:1", "L4:1")
"""What the jobs of a schedule ask for: both clouds sell one of them."""


class ScriptedTime:
    """The time of everybody: of the cloud, its machines and the control plane.

    Implements `app.ports.clock.Clock`, and what seeded entropy reads of a virtual clock.
    """

    def __init__(self) -> None:
        self._now = STARTS_AT
        self._plans: list[tuple[datetime, Callable[[], None]]] = []

    @property
    def true_us(self) -> int:
        """Microseconds since 1970."""
        return since_epoch_us(self._now)

    def now(self) -> datetime:
        """The instant."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Let time pass; what was planned happens at its own instant, in order."""
        until = self._now + timedelta(seconds=seconds)
        while due := [plan for plan in self._plans if plan[0] <= until]:
            plan = min(due, key=lambda one: one[0])
            self._plans.remove(plan)
            self._now = max(self._now, plan[0])
            plan[1]()
        self._now = until

    def plan(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something later."""
        self._plans.append((self._now + timedelta(seconds=seconds), what))


class ScriptedCloud(Protocol):
    """One fake cloud in a schedule."""

    time: ScriptedTime
    name: str

    def connect(self) -> tuple[CloudProvider, PriceSource]:
        """Provider and prices as a new process makes them: they remember nothing."""
        ...

    def misbehave(self, dice: Dice) -> str:
        """Let one thing go wrong from now on; its name."""
        ...

    def harm(self, dice: Dice) -> str | None:
        """Do something to one running machine, or to a message about it; what, and to which."""
        ...

    def calm(self) -> None:
        """Nothing goes wrong any more, and there is room."""
        ...

    def running(self) -> dict[str, str]:
        """Scripts of the machines that run, by the machine's id."""
        ...

    def living(self) -> set[str]:
        """Machines that the cloud still holds, whatever state they are in."""
        ...

    def forgotten(self) -> list[str]:
        """Disks that belong to no machine."""
        ...

    def started(self) -> Counter[str]:
        """Machines that ran, by their launch's token."""
        ...

    def launches(self) -> Counter[str]:
        """Launches that started any machine, by token."""
        ...

    def bill(self) -> dict[str, int]:
        """What each machine costs in micro-USD, by the cloud's own rules."""
        ...
