"""The wakeup port: ring a controller soon. A ring carries no truth and may be lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Wakeups(Protocol):
    """The doorbell."""

    def notify(self, controllers: Iterable[str]) -> None:
        """Ask for a run of the named controllers; never raises, never blocks on a network."""
        ...
