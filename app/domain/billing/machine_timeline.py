"""A machine's phases as spans of time, from the instants at which each began.

Lives here: where a phase ends, and which steps a training phase covered. Not here: overlaps and
rework (`phase_timeline`), or what the time cost (`cost_statement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.domain.billing.phase_timeline import PhaseSpan
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
    """Where an attempt began, and the last step it is known to have finished.

    start_up_seconds: from its trainer's start to the end of its first step, `first_step`, where the
    phases tell only the start; None where they tell both, or nothing is known. lost: it has ended
    without a word of any step and without a checkpoint, so that nothing of it was kept. kept_step:
    of a job that has failed, its newest saved step, beyond which all work was lost; else None.
    """

    resumed_from_step: int
    last_step: int
    first_step: int | None = None
    start_up_seconds: float | None = None
    lost: bool = False
    kept_step: int | None = None


def machine_timeline(
    starts: Sequence[PhaseStart],
    launched_at: datetime,
    until: datetime,
    attempts: Mapping[int, AttemptReach],
) -> tuple[PhaseSpan, ...]:
    """The spans, by start; `starts` come in the order in which the agent told them.

    What passes before the first phase is boot: no agent could tell. The last phase lasts until
    `until`. `attempts`, by fence, say what a training phase covered where no phase of the same
    attempt tells its first or last step, and when its first step was done: what passes before it is
    setup.
    """
    ordered = _with_start_up(sorted(starts, key=lambda start: start.from_at), attempts)
    spans: list[PhaseSpan] = []
    first_at = ordered[0].from_at if ordered else until
    if first_at > launched_at:
        spans.append(PhaseSpan(MachinePhase.BOOT, launched_at, min(first_at, until)))
    for place, start in enumerate(ordered):
        ends_at = ordered[place + 1].from_at if place + 1 < len(ordered) else until
        if ends_at <= start.from_at:
            continue
        first, last = _steps(ordered, place, attempts)
        reach = attempts.get(start.fence or 0)
        lost = start.phase is MachinePhase.TRAIN and reach is not None and reach.lost
        span = PhaseSpan(start.phase, start.from_at, ends_at, start.fence, first, last, lost)
        spans.extend(_kept_and_lost(span, None if reach is None else reach.kept_step))
    return tuple(spans)


def _kept_and_lost(span: PhaseSpan, kept_step: int | None) -> tuple[PhaseSpan, ...]:
    """The span cut after the last step that was kept; its steps are taken to be equally long."""
    first, last = span.first_step, span.last_step
    if kept_step is None or first is None or last is None or last <= kept_step:
        return (span,)
    if first > kept_step:
        return (replace(span, lost=True),)
    kept = (span.to_at - span.from_at) * (kept_step - first + 1) // (last - first + 1)
    cut_at = span.from_at + kept
    return (
        replace(span, to_at=cut_at, last_step=kept_step),
        replace(span, from_at=cut_at, first_step=kept_step + 1, lost=True),
    )


def _with_start_up(
    ordered: Sequence[PhaseStart], attempts: Mapping[int, AttemptReach]
) -> list[PhaseStart]:
    """Training begins with the end of the first step; until then a trainer starts up."""
    found: list[PhaseStart] = []
    process_at: dict[int, datetime] = {}
    for place, start in enumerate(ordered):
        reach = attempts.get(start.fence or 0)
        told = start.phase is not MachinePhase.TRAIN or start.step is not None
        if told or start.fence is None or reach is None or reach.start_up_seconds is None:
            found.append(start)
            continue
        begun_at = process_at.setdefault(start.fence, start.from_at)
        stepped_at = begun_at + timedelta(seconds=reach.start_up_seconds)
        if start.from_at >= stepped_at:
            found.append(start)
            continue
        found.append(replace(start, phase=MachinePhase.SETUP))
        if place + 1 == len(ordered) or ordered[place + 1].from_at > stepped_at:
            found.append(replace(start, from_at=stepped_at, step=reach.first_step))
    return found


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
