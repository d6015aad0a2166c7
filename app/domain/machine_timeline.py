"""A machine's phases as spans of time, from the instants at which each began.

Lives here: where a phase ends, and which steps a training phase covered. Not here: overlaps and
rework (`phase_timeline`), or what the time cost (`cost_statement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.phase_timeline import PhaseSpan
from trainer.protocol.agent_report import MachinePhase


@dataclass(frozen=True, slots=True)
class PhaseStart:
    """From `from_at` on the machine was in this phase; `step`: the last one finished by then."""

    phase: MachinePhase
    from_at: datetime
    fence: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptReach:
    """Where an attempt began, and the last step it is known to have finished."""

    resumed_from_step: int
    last_step: int


def machine_timeline(
    starts: Sequence[PhaseStart],
    launched_at: datetime,
    until: datetime,
    attempts: Mapping[int, AttemptReach],
) -> tuple[PhaseSpan, ...]:
    """The spans, by start; `starts` come in the order in which the agent told them.

    What passes before the first phase is boot: no agent could tell. The last phase lasts until
    `until`. `attempts`, by fence, say what a training phase covered where no phase of the same
    attempt tells its first or last step.
    """
    ordered = sorted(starts, key=lambda start: start.from_at)
    spans: list[PhaseSpan] = []
    first_at = ordered[0].from_at if ordered else until
    if first_at > launched_at:
        spans.append(PhaseSpan(MachinePhase.BOOT, launched_at, min(first_at, until)))
    for place, start in enumerate(ordered):
        ends_at = ordered[place + 1].from_at if place + 1 < len(ordered) else until
        if ends_at <= start.from_at:
            continue
        first, last = _steps(ordered, place, attempts)
        spans.append(PhaseSpan(start.phase, start.from_at, ends_at, start.fence, first, last))
    return tuple(spans)


def _steps(
    ordered: Sequence[PhaseStart], place: int, attempts: Mapping[int, AttemptReach]
) -> tuple[int | None, int | None]:
    """First and last step trained in a phase, both None when it trained none or none is known."""
    start = ordered[place]
    if start.phase is not MachinePhase.TRAIN or start.fence is None:
        return None, None
    reach = attempts.get(start.fence)
    begun = start.step
    if begun is None and reach is not None:
        begun = reach.resumed_from_step
    told = (
        later.step
        for later in ordered[place + 1 :]
        if later.fence == start.fence and later.step is not None
    )
    last = next(told, None if reach is None else reach.last_step)
    if begun is None or last is None or last <= begun:
        return None, None
    return begun + 1, last
