"""The effect runner of a simulation: one piece after the other, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

W = TypeVar("W")


class SerialEffects:
    """Implements `app.ports.effect_runner.EffectRunner`."""

    def run_all(self, task: Callable[[W], None], work: Sequence[W]) -> None:
        """Call `task` on every piece."""
        for piece in work:
            task(piece)
