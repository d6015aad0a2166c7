"""What the agents of a story measure of their trainers' steps, by the story's time.

Not here: the measuring itself, which is the agent's own (`trainer.agent.rules.step_pace`).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from trainer.agent.rules.step_pace import StepPace
from trainer.protocol.agent_report import FactKind, Pace
from trainer.protocol.wire import encode

Own = tuple[UUID, int | None]


class WatchedPaces:
    """measures: False for agents of the release before, which measure nothing."""

    def __init__(self) -> None:
        self.measures = True
        self._paces: dict[Own, StepPace] = {}
        self._parents: dict[Own, int | None] = {}

    def hear(
        self, own: Own, kind: FactKind | None, at_step: int | None, data: dict[str, Any], now: float
    ) -> Pace | None:
        """Take in what a machine says of an attempt; the end of a trainer gets its pace."""
        if kind is FactKind.PREPARED:
            self._parents[own] = (data.get("parent") or {}).get("step")
        if kind is FactKind.TRAINER_STARTED:
            self._paces[own] = StepPace(now)
        pace = self._paces.get(own)
        if pace is None or not self.measures:
            return None
        if at_step is not None:
            pace = self._paces[own] = pace.seen(at_step, self._parents.get(own), now)
        if kind is FactKind.TRAINER_ENDED and pace.told is not None:
            data.setdefault("pace", encode(pace.told))
        return pace.told
