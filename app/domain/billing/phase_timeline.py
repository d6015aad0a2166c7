"""What a machine was doing, second by second, and which of its steps were trained before.

Lives here: phase spans made disjoint, and the rework among trained steps. Not here: the money
spent in them (`cost_statement`). Phases are the agent's words (`MachinePhase`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from trainer.protocol.agent_report import MachinePhase

MICROSECOND = timedelta(microseconds=1)
US_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase over `[from_at, to_at)`.

    `first_step` and `last_step` (inclusive) are the steps whose training ended in a `train` span
    of the attempt with this fence; both None when no step is known. `lost`: training of which
    nothing was kept, though no later attempt did it again.
    """

    phase: MachinePhase
    from_at: datetime
    to_at: datetime
    fence: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class AttemptSteps:
    """How far one attempt trained: from the step it resumed at to the last one it finished."""

    fence: int
    resumed_from_step: int
    last_step: int


def disjoint(spans: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """The spans in order of time; where two overlap, the one that began later is believed.

    A phase lasts until the next one begins, so an overlap only says that its end came late.
    Spans of no length are left out.
    """
    ordered = sorted(spans, key=lambda span: (span.from_at, span.to_at))
    cut = [
        replace(span, to_at=min(span.to_at, following.from_at))
        for span, following in pairwise(ordered)
    ]
    return tuple(span for span in (*cut, *ordered[-1:]) if span.to_at > span.from_at)


def rework_through(attempts: Iterable[AttemptSteps]) -> dict[int, int]:
    """For each fence the last step that an earlier fence had already trained, 0 for none.

    A step is rework when it is at or below that: it was paid for once, lost, and done again.
    """
    reached = 0
    through: dict[int, int] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.fence):
        through[attempt.fence] = reached
        reached = max(reached, attempt.last_step)
    return through


def rework_ends_at(span: PhaseSpan, through: Mapping[int, int]) -> datetime:
    """Until when a training span redid lost steps; its `from_at` when it redid none.

    Steps rise within a span, so its rework comes first; they are taken to be equally long. A span
    that is lost as a whole counts as rework itself, whether or not something was done again.
    """
    if span.lost:
        return span.to_at
    first, last = span.first_step, span.last_step
    if span.phase is not MachinePhase.TRAIN or first is None or last is None or last < first:
        return span.from_at
    redone = min(last, through.get(span.fence or 0, 0)) - first + 1
    if redone <= 0:
        return span.from_at
    length_us = (span.to_at - span.from_at) // MICROSECOND
    return span.from_at + (length_us * redone // (last - first + 1)) * MICROSECOND


def rework_seconds(spans: Sequence[PhaseSpan], attempts: Iterable[AttemptSteps]) -> int:
    """Whole seconds of one machine's timeline spent on steps that had been trained before."""
    through = rework_through(attempts)
    redone_us = sum(
        (rework_ends_at(span, through) - span.from_at) // MICROSECOND for span in disjoint(spans)
    )
    return redone_us // US_PER_SECOND
