"""One call of the supervisor while it is being worked out: the state so far, the actions so far.

Lives here: the small moves every rule is made of (emit a fact, enter a phase, change the work).
Not here: the rules themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainer.agent.rules.actions import Action, Leave, ReportNow
from trainer.agent.rules.agent_state import AgentState, Work
from trainer.protocol.agent_report import NEVER_DROPPED, FactKind, MachinePhase

POINTS_PER_FACT_MAX = 50
NOTICE_IDS_KEPT_MAX = 100


class StepContext:
    """Mutable inside one `step`, never seen outside it."""

    def __init__(self, state: AgentState, now: float) -> None:
        self.state = state
        self.now = now
        self._actions: list[Action] = []
        self._report = False

    @property
    def fence(self) -> int | None:
        """The attempt this machine works for, if any."""
        return self.state.work.fence if self.state.work else None

    def do(self, action: Action) -> None:
        """Ask for an action; one ReportNow is enough for a turn and it comes last."""
        if isinstance(action, ReportNow):
            self._report = True
        else:
            self._actions.append(action)

    def finished_actions(self) -> tuple[Action, ...]:
        """All actions, in order."""
        return (*self._actions, *((ReportNow(),) if self._report else ()))

    def work(self, **changes: Any) -> None:
        """Change fields of the current work; nothing when there is none."""
        if self.state.work is not None:
            self.state = replace(self.state, work=replace(self.state.work, **changes))

    def set_work(self, work: Work) -> None:
        """Begin with another attempt."""
        self.state = replace(self.state, work=work, progress=None, points=())

    def emit(self, kind: FactKind, fence: int | None, data: dict[str, Any]) -> None:
        """Queue a fact; the kinds that may not be lost are reported at once."""
        facts = self.state.facts.add(kind, self.now, fence, data)
        self.state = replace(self.state, facts=facts)
        self._report = self._report or kind in NEVER_DROPPED

    def enter(self, phase: MachinePhase, at: float, step: int | None = None) -> None:
        """Begin a phase of the timeline; instants never run backwards or into the future."""
        if phase is self.state.phase:
            return
        at = min(max(at, self.state.phase_at), self.now)
        data = {"phase": phase.value, "step": step}
        facts = self.state.facts.add(FactKind.PHASE, at, self.fence, data)
        self.state = replace(self.state, facts=facts, phase=phase, phase_at=at)

    def add_point(self, point: dict[str, float]) -> None:
        """Keep a point of the charts; when a fact's worth is full every other one goes."""
        points = (*self.state.points, point)
        if len(points) > POINTS_PER_FACT_MAX:
            points = points[1::2]
        self.state = replace(self.state, points=points)

    def flush_points(self, at_once: bool) -> None:
        """Turn the kept points into one fact, at most once a second unless `at_once`."""
        state = self.state
        if not state.points or not (at_once or self.now >= state.points_sent_at + 1.0):
            return
        data = {"points": [dict(point) for point in state.points]}
        facts = state.facts.add(FactKind.METRICS, self.now, self.fence, data)
        self.state = replace(state, facts=facts, points=(), points_sent_at=self.now)

    def leave(self, reason: str) -> None:
        """Say goodbye once."""
        if not self.state.leaving:
            self.state = replace(self.state, leaving=True)
            self.emit(FactKind.LEAVING, self.fence, {"reason": reason})
            self.do(Leave())
