"""How long a trainer takes to start, as learned: from its process's start to its first step's end.

Start-up is imports, downloads, compiling and loading the checkpoint that is on the machine already.
It is a part of every restart, beside boot (until the machine registers) and restore (until its
agent has the checkpoint and starts the process), and of none of those; it is never work. Lives
here: the figure, and what is left of it. Not here: which attempts are asked (`attempt_measures`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.domain.lifecycle.attempt import AttemptState

OWN_ENOUGH: Final = 5
"""From so many starts of its own on, a job's slowest ones are told by those alone."""

UNSEEN_MOST_SECONDS: Final = 1_200.0
"""A process that was never seen to step may be one that tells no steps: waiting for its first one
says no more than that it takes so long."""

LEFT_SHARE: Final = 0.25
LEFT_SECONDS: Final = (10.0, 300.0)
"""A start that lasts longer than expected goes on for a quarter of what it took, within these."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """Seconds: usual (the median), and slow (the 95th percentile). 0: nothing is known."""

    usual: float = 0.0
    slow: float = 0.0


NOT_LEARNED: Final = StartUp()


def learn_start_up(own: Sequence[float], alike: Sequence[float]) -> StartUp | None:
    """From measured starts in seconds; None without any.

    own: of the job itself; alike: of other jobs with the same work.
    """
    if not own and not alike:
        return None
    slowest = _slow(own)
    if len(own) < OWN_ENOUGH:
        slowest = max(slowest, _slow(alike))
    return StartUp(median(own or alike), slowest)


def start_up_left(usual_seconds: float, elapsed_seconds: float) -> float:
    """Seconds until the first step of a process that runs and has made none: never nothing."""
    elapsed = max(0.0, elapsed_seconds)
    least, most = LEFT_SECONDS
    floor = min(most, max(least, LEFT_SHARE * elapsed))
    return max(usual_seconds - elapsed, floor)


def seconds_to_first_step(
    state: AttemptState, to_start_seconds: float, start_seconds: float
) -> float:
    """Until an attempt steps.

    to_start_seconds: until its trainer starts, as expected when it was requested. start_seconds:
    from then until its first step; 0 once it has made one.
    """
    if state in (AttemptState.PROVISIONING, AttemptState.PREPARING):
        return max(0.0, to_start_seconds) + start_seconds
    return start_seconds if state is AttemptState.RUNNING else 0.0


def start_up_by_saves(first_seconds: float, second_seconds: float) -> float:
    """How long a command that reports no steps took to start, by its first two saves.

    Both count from the start of its process. A command that saves at even intervals trained as long
    before its first save as between the two; what it ran besides was start-up.
    """
    between = second_seconds - first_seconds
    if between <= 0:
        return 0.0  # a clock was set back: it says nothing
    return min(UNSEEN_MOST_SECONDS, max(0.0, first_seconds - between))


def at_least(known: StartUp, elapsed_seconds: float) -> StartUp:
    """The same, while a process has run for so long without a step."""
    elapsed = min(max(0.0, elapsed_seconds), UNSEEN_MOST_SECONDS)
    return StartUp(known.usual or elapsed, max(known.slow, elapsed))


def _slow(seconds: Sequence[float]) -> float:
    """The 95th percentile by nearest rank, 0 of none."""
    if not seconds:
        return 0.0
    return sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]
