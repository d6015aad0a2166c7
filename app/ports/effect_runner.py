"""The effect runner port: does the slow parts of a batch, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

W = TypeVar("W")


class EffectRunner(Protocol):
    """Runs one task per piece of work; threads in production, one by one in a simulation."""

    def run_all(self, task: Callable[[W], None], work: Sequence[W]) -> None:
        """Call `task` on every piece and return when all are done; tasks do not raise."""
        ...
