"""The clock port: the only way to know the time or to wait."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Aware UTC wall time, and bounded waiting."""

    def now(self) -> datetime:
        """The instant, aware, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; virtual clocks advance instead."""
        ...
